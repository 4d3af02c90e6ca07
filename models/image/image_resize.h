// Bilinear and bicubic resampling as in torchvision, in uint8.
#pragma once
#include <ATen/core/Tensor.h>

#include "models/image/image.h"

namespace lft::image {

/// A tensor [1, 3, height, width] over the same bytes, in channels_last layout, without a copy.
at::Tensor as_tensor(const View& image);

/// Antialiased bicubic and bilinear resizing on uint8, as in torchvision: [1, 3, height, width]. An
/// image of that size is returned unchanged.
at::Tensor resize_bicubic(const at::Tensor& image_nchw, const Size& to);

at::Tensor resize_bilinear(const at::Tensor& image_nchw, const Size& to);

}  // namespace lft::image
