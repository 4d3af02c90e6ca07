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

/// [1, 3, height, width] over the same bytes, in channels_last layout: no copy.
at::Tensor as_tensor(const View& image);

/// Antialiased bicubic on uint8, as torchvision resizes: [1, 3, height, width]. An image of that
/// size is given back as it is. And bilinear.
at::Tensor resize_bicubic(const at::Tensor& image_nchw, const Size& to);
at::Tensor resize_bilinear(const at::Tensor& image_nchw, const Size& to);

/// Lanczos with the rounding of Pillow's Image.resize: bytes of a View of that size. No more memory
/// than the result and the image resized one way.
std::vector<uint8_t> resize_lanczos(const View& image, const Size& to);

/// The image in the middle of a square of its longer side, the rest `colour`: bytes of a View.
std::vector<uint8_t> pad_to_square(const View& image, const std::array<uint8_t, 3>& colour);

}  // namespace lft::image
