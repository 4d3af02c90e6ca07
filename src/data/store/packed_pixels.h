// Lossless compression of 8-bit pixels: a photograph takes half of its size or less.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace lft::data {

/// The shape of PixelImage's pixels: groups of three planes.
struct PlaneShape {
  int64_t planes = 0, height = 0, width = 0;
  int64_t values() const { return planes * height * width; }
};

/// Subtracts green from red and blue, and from each value the prediction of its neighbours
/// (LOCO-I's median), and compresses by zlib. The result depends only on the pixels.
std::vector<uint8_t> pack_pixels(std::span<const uint8_t> pixels, const PlaneShape& shape);
/// False where `packed` is no output of pack_pixels() for this shape.
bool unpack_pixels(std::span<const uint8_t> packed, const PlaneShape& shape,
                   std::vector<uint8_t>& pixels);

}  // namespace lft::data
