// Encodes RGB bytes as a PNG file with zlib alone: for small pictures in reports, also in builds
// without image libraries.
#pragma once
#include <string>

#include "src/io/image.h"

namespace lft::io {

std::string png_file(const RgbImage& image);

}  // namespace lft::io
