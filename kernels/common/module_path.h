// Locates modules that lft opens at run time, since they link libraries that not every machine
// has.
#pragma once
#include <filesystem>
#include <string>
#include <system_error>

namespace lft {

/// The path of a file from the build: next to the program, where both are installed, or in the
/// build folder of a test program. Next to the program if the file does not exist.
inline std::string module_path(const std::string& file) {
  std::error_code none;
  const std::filesystem::path folder =
      std::filesystem::read_symlink("/proc/self/exe", none).parent_path();
  for (const auto& place : {folder, folder.parent_path() / "lib" / "lft", folder.parent_path()}) {
    if (std::filesystem::exists(place / file, none)) return (place / file).string();
  }
  return (folder / file).string();
}

}  // namespace lft
