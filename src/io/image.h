// Pixels of a decoded image, and the image files of a data folder.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "src/io/file_handle.h"
#include "src/io/image_header.h"
#include "src/io/pages.h"

namespace lft::io {

using Pixels = std::vector<uint8_t, PageAllocator<uint8_t>>;
struct RgbImage {
  int64_t width = 0, height = 0;
  Pixels rgb_hwc;
};

/// `name` under `root`, resolved; it need not exist. kInput for a URL, for no file name, and for a
/// path outside `root` (also through a symlink, unless they are followed).
std::string image_path(const std::string& root, const std::string& name,
                       bool follow_symlinks = false);
/// Opens image_path(root, name), with one system call if no symlink leaves `root`. An empty `root`
/// opens `name` itself.
FileHandle open_image(const std::string& root, const std::string& name, bool follow_symlinks);

}  // namespace lft::io
