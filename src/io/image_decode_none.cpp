#include "kernels/common/error.h"
#include "src/io/image.h"

namespace lft {

RgbImage decode_image(const std::string&, const std::string& where, const ImageLimits&) {
  throw Error(ErrorKind::kUsage,
              {.what = "this lft was built without image decoding",
               .where = where,
               .found = "",
               .expected = "",
               .next = "write prepared data with `lft prepare` on a machine whose lft has it, or build with -DLFT_OPENCV=ON"});
}

}  // namespace lft
