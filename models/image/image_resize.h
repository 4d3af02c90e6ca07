// Bilinear and bicubic resampling as torchvision does it, in uint8.
#pragma once
#include <ATen/core/Tensor.h>

#include "models/image/image.h"

namespace lft::image {

/// [1, 3, height, width] over the same bytes, in channels_last layout: no copy.
at::Tensor as_tensor(const View& image);

/// Antialiased bicubic on uint8, as torchvision resizes: [1, 3, height, width]. An image of that
/// size is given back as it is. And bilinear.
at::Tensor resize_bicubic(const at::Tensor& image_nchw, const Size& to);

at::Tensor resize_bilinear(const at::Tensor& image_nchw, const Size& to);

}  // namespace lft::image
