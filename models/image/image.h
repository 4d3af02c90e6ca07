// Photographs as bytes, and the resampling that processors of transformers do with them. All in
// uint8, three channels.
#pragma once
#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <vector>

namespace lft::image {

/// Somebody's pixels, rows of interleaved red, green and blue.
struct View {
  const uint8_t* rgb_hwc = nullptr;
  int64_t width = 0, height = 0;
};

struct Size {
  int64_t width = 0, height = 0;
  bool operator==(const Size&) const = default;
};

}  // namespace lft::image
