#include "src/io/image.h"

#include <filesystem>
#include <optional>

#include "kernels/common/error.h"
#include "src/base/errors.h"
#include "src/io/files.h"

namespace lft::io {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void refuse_file(const std::string& what, const std::string& name,
                              const std::string& root, const std::string& next = "",
                              const std::string& found = "") {
  refuse(ErrorKind::kInput, what, quote_text(name), found,
         root.empty() ? "" : "a file under " + root, next);
}

/// `name` under `root`, resolved lexically without following links; nothing if the path leaves
/// `root`.
std::optional<std::string> named_below(const std::string& root, const std::string& name) {
  const fs::path above = fs::absolute(root).lexically_normal();
  const fs::path path = (name.front() == '/' ? fs::path(name) : above / name).lexically_normal();
  const fs::path relative = path.lexically_relative(above);
  if (relative.empty() || *relative.begin() == "..") return std::nullopt;
  return path.string();
}

}  // namespace

std::string image_path(const std::string& root, const std::string& name, bool follow_symlinks) {
  if (name.empty() || name.find('\0') != std::string::npos)
    refuse_file("not a file name", name, root);
  if (name.find("://") != std::string::npos || name.compare(0, 5, "data:") == 0) {
    refuse_file("images are not fetched from a URL", name, root,
                "download the image and name the file");
  }
  if (root.empty()) return absolute_path(name);
  std::string path = absolute_path(name.front() == '/' ? name : root + "/" + name);
  if (is_inside(path, root)) return path;
  const std::optional<std::string> named = named_below(root, name);
  if (!named)
    refuse_file("the image is outside its folder", name, root,
                "move it there, or set the image root to a folder above both");
  if (follow_symlinks) return absolute_path(*named);
  refuse_file("a symlink points to an image outside its folder", name, root,
              "set data.follow_symlinks: true if that is intended", path);
}

FileHandle open_image(const std::string& root, const std::string& name, bool follow_symlinks) {
  if (root.empty()) return FileHandle::open_to_read(name);
  const bool plain = !name.empty() && name.front() != '/' &&
                     name.find("://") == std::string::npos && name.compare(0, 5, "data:") != 0;
  if (plain) {
    FileHandle file = FileHandle::open_beneath(root, name);
    if (file.is_open()) return file;
  }
  return FileHandle::open_to_read(image_path(root, name, follow_symlinks));
}

}  // namespace lft::io
