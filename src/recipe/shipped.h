// The recipes that come with lft, and the files that they name.
#pragma once
#include <string>

namespace lft::recipe {

/// LFT_RECIPES, else recipes/ of the sources that the program was built in, of its installation, or
/// of the working directory. kUsage where none of them is there.
std::string shipped_folder();
/// Resolves recipes/x: the path itself when it exists; else the bundled file of this name, when
/// that exists. Any other path is returned unchanged.
std::string resolve_bundled_path(const std::string& path);

}  // namespace lft::recipe
