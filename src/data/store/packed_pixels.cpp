#include "src/data/store/packed_pixels.h"

#include <zlib.h>

#include <algorithm>

#include "kernels/common/error.h"

namespace lft::data {
namespace {

constexpr int kFast = 1;  // of zlib's levels: higher ones save 3% and take three times as long
constexpr int64_t kMostValues = 1ll << 31;

/// Predicts the value at `x` of a row: the median of left, upper, and left + upper - upper left.
/// Values outside the plane are zero.
uint8_t expected(const uint8_t* row, const uint8_t* above, int64_t x) {
  const int left = x > 0 ? row[x - 1] : 0, up = above != nullptr ? above[x] : 0,
            corner = x > 0 && above != nullptr ? above[x - 1] : 0;
  return static_cast<uint8_t>(
      std::clamp(left + up - corner, std::min(left, up), std::max(left, up)));
}

/// Subtracts the green plane from the red and blue planes, or adds it back.
void shift_by_green(uint8_t* pixels, const PlaneShape& shape, bool more) {
  const int64_t area = shape.height * shape.width;
  for (int64_t plane = 0; plane + 2 < shape.planes; plane += 3) {
    uint8_t* const red = pixels + plane * area;
    const uint8_t* const green = red + area;
    uint8_t* const blue = red + 2 * area;
    for (int64_t i = 0; i < area; ++i) {
      const int shift = more ? green[i] : -green[i];
      red[i] = static_cast<uint8_t>(red[i] + shift);
      blue[i] = static_cast<uint8_t>(blue[i] + shift);
    }
  }
}

}  // namespace

std::vector<uint8_t> pack_pixels(std::span<const uint8_t> pixels, const PlaneShape& shape) {
  std::vector<uint8_t> planes(pixels.begin(), pixels.end()), rest(pixels.size());
  shift_by_green(planes.data(), shape, /*more=*/false);
  for (int64_t y = 0; y < shape.planes * shape.height; ++y) {
    const uint8_t* const row = planes.data() + y * shape.width;
    const uint8_t* const above = y % shape.height > 0 ? row - shape.width : nullptr;
    for (int64_t x = 0; x < shape.width; ++x)
      rest[static_cast<size_t>(y * shape.width + x)] =
          static_cast<uint8_t>(row[x] - expected(row, above, x));
  }
  uLongf bytes = compressBound(rest.size());
  std::vector<uint8_t> packed(bytes);
  if (compress2(packed.data(), &bytes, rest.data(), rest.size(), kFast) != Z_OK)
    throw Error(ErrorKind::kResource, "out of memory while pixels were packed");
  packed.resize(bytes);
  return packed;
}

bool unpack_pixels(std::span<const uint8_t> packed, const PlaneShape& shape,
                   std::vector<uint8_t>& pixels) {
  if (shape.planes < 0 || shape.height < 0 || shape.width < 0 || shape.values() > kMostValues)
    return false;
  pixels.resize(static_cast<size_t>(shape.values()));
  uint8_t none = 0;  // zlib needs a valid output pointer
  uLongf bytes = pixels.size();
  if (uncompress(pixels.empty() ? &none : pixels.data(), &bytes, packed.data(), packed.size()) !=
          Z_OK ||
      bytes != pixels.size())
    return false;
  for (int64_t y = 0; y < shape.planes * shape.height; ++y) {
    uint8_t* const row = pixels.data() + y * shape.width;
    const uint8_t* const above = y % shape.height > 0 ? row - shape.width : nullptr;
    for (int64_t x = 0; x < shape.width; ++x)
      row[x] = static_cast<uint8_t>(row[x] + expected(row, above, x));
  }
  shift_by_green(pixels.data(), shape, /*more=*/true);
  return true;
}

}  // namespace lft::data
