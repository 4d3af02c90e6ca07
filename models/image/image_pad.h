// Padding of an image to a square.
#pragma once
#include <array>
#include <vector>

#include "models/image/image.h"

namespace lft::image {

/// Centres the image in a square of its longer side, filled with `colour`; returns the bytes of a
/// View.
std::vector<uint8_t> pad_to_square(const View& image, const std::array<uint8_t, 3>& colour);

}  // namespace lft::image
