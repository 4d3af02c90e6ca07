// Images as bytes: uint8, three channels.
#pragma once
#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <vector>

namespace lft::image {

/// A view of pixels: rows of interleaved red, green and blue. Does not own them.
struct View {
  const uint8_t* rgb_hwc = nullptr;
  int64_t width = 0, height = 0;
};

struct Size {
  int64_t width = 0, height = 0;
  bool operator==(const Size&) const = default;
};

}  // namespace lft::image
