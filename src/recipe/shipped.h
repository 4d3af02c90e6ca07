// The bundled recipes, and the files that they refer to.
#pragma once
#include <string>

namespace lft::recipe {

/// LFT_RECIPES, else recipes/ of the program's source directory, of its installation, or of the
/// working directory. kUsage if none of them exists.
std::string shipped_folder();
/// Resolves recipes/x: the path itself if it exists; else the bundled file of this name, if that
/// exists. Any other path is returned unchanged.
std::string resolve_bundled_path(const std::string& path);

}  // namespace lft::recipe
