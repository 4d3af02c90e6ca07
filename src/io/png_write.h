// RGB bytes as a PNG file, without compression and without a library: for small pictures in
// reports.
#pragma once
#include <string>

#include "src/io/image.h"

namespace lft::io {

std::string png_file(const RgbImage& image);

}  // namespace lft::io
