// RGB bytes as a PNG file, by zlib alone: for small pictures in reports, in builds without image
// libraries too.
#pragma once
#include <string>

#include "src/io/image.h"

namespace lft::io {

std::string png_file(const RgbImage& image);

}  // namespace lft::io
