#include "kernels/common/error.h"
#include "src/io/decode/image_decode.h"

namespace lft::io {
namespace {

[[noreturn]] void no_decoder(const std::string& where) {
  refuse(ErrorKind::kUsage, "this lft was built without image decoding", where, {}, {},
         "write prepared data with `lft prepare` on a machine "
         "whose lft has it, or build with -DLFT_OPENCV=ON");
}

}  // namespace

std::string image_libraries() { return ""; }
std::string jpeg_file(const RgbImage&) { no_decoder("a picture"); }

void load_decoder(const ImageHeader&) {}

RgbImage decode_image(std::string_view, const ImageHeader&, const std::string& where, Alpha) {
  no_decoder(where);
}
RgbImage decode_image(std::string_view, const std::string& where, const ImageLimits&) {
  no_decoder(where);
}
RgbImage decode_square(std::string_view, const ImageHeader&, const std::string& where,
                       const std::array<uint8_t, 3>&, Alpha) {
  no_decoder(where);
}
ImageCheck check_image(std::string_view, const std::string& where, const ImageLimits&) {
  no_decoder(where);
}
}  // namespace lft::io
