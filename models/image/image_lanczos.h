// Lanczos resampling as Pillow does it, in uint8.
#pragma once
#include <vector>

#include "models/image/image.h"

namespace lft::image {

/// Lanczos with the rounding of Pillow's Image.resize: bytes of a View of that size. No more memory
/// than the result and the image resized one way.
std::vector<uint8_t> resize_lanczos(const View& image, const Size& to);

}  // namespace lft::image
