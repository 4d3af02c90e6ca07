// 8-bit pixels without loss in fewer bytes: a photograph's in half or less.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace lft::data {

/// Of pixels as PixelImage has them: planes in threes, one after the other.
struct PlaneShape {
  int64_t planes = 0, height = 0, width = 0;
  int64_t values() const { return planes * height * width; }
};

/// Red and blue less green, each value less what its neighbours let expect (LOCO-I's median), by
/// zlib. A function of the pixels alone.
std::vector<uint8_t> pack_pixels(std::span<const uint8_t> pixels, const PlaneShape& shape);
/// False where `packed` is not what pack_pixels() made of pixels of this shape.
bool unpack_pixels(std::span<const uint8_t> packed, const PlaneShape& shape,
                   std::vector<uint8_t>& pixels);

}  // namespace lft::data
