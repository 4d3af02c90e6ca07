#include "src/io/image.h"

#include "kernels/common/error.h"
#include "src/base/errors.h"
#include "src/io/files.h"

namespace lft {
namespace {

[[noreturn]] void refuse(const std::string& what, const std::string& name, const std::string& root, const std::string& next = "") {
  throw Error(ErrorKind::kInput,
              {.what = what, .where = quote_text(name), .found = "", .expected = root.empty() ? "" : "a file under " + root, .next = next});
}

}  // namespace

std::string image_path(const std::string& root, const std::string& name) {
  if (name.empty() || name.find('\0') != std::string::npos) refuse("not a file name", name, root);
  if (name.find("://") != std::string::npos || name.compare(0, 5, "data:") == 0) {
    refuse("images are not fetched from a URL", name, root, "download the image and name the file");
  }
  if (root.empty()) return absolute_path(name);
  const std::string path = absolute_path(name.front() == '/' ? name : root + "/" + name);
  if (!is_inside(path, root))
    refuse("the image lies outside its folder", name, root, "move it there, or set the image root to a folder above both");
  return path;
}

RgbImage load_image(const std::string& root, const std::string& name, const ImageLimits& limits) {
  const std::string path = image_path(root, name);
  return decode_image(read_file(path, limits.max_bytes), path, limits);
}

}  // namespace lft
