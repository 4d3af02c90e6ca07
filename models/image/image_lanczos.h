// Lanczos resampling as in Pillow, in uint8.
#pragma once
#include <vector>

#include "models/image/image.h"

namespace lft::image {

/// Resizes with the rounding of Image.resize of Pillow; returns the bytes of a View of that size.
/// Allocates only the result and the image resized in one direction.
std::vector<uint8_t> resize_lanczos(const View& image, const Size& to);

}  // namespace lft::image
