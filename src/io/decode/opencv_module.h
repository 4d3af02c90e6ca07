// The interface between the OpenCV module and the program that opens it. The program itself does
// not link OpenCV, whose image codecs bring 120 libraries, a fifth of a second at each start.
#pragma once
#include <string>
#include <string_view>

#include "src/io/decode/image_decode.h"

namespace lft::io {

inline constexpr const char* kOpencvModule = "liblft_opencv.so";
inline constexpr const char* kOpencvEntry = "lft_decode_with_opencv";

/// Decodes the bytes of a file to `image`, with pixels in at least `room` bytes. `reason` is empty,
/// or why the bytes are no image.
using OpencvEntry = void (*)(std::string_view bytes, size_t room, Alpha alpha, RgbImage& image,
                             std::string& reason);

}  // namespace lft::io
