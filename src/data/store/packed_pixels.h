// Lossless compression of 8-bit pixels: a photograph shrinks to half its size or less.
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

/// Subtracts green from red and blue, and from each value its prediction from the neighbours
/// (LOCO-I's median), and compresses with zlib. The result depends only on the pixels.
std::vector<uint8_t> pack_pixels(std::span<const uint8_t> pixels, const PlaneShape& shape);
/// False if `packed` is no output of pack_pixels() for this shape.
bool unpack_pixels(std::span<const uint8_t> packed, const PlaneShape& shape,
                   std::vector<uint8_t>& pixels);

}  // namespace lft::data
