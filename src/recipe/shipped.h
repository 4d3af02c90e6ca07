// The recipes that come with lft, and the files that they name.
#pragma once
#include <string>

namespace lft::recipe {

/// LFT_RECIPES, else recipes/ of the sources that the program was built in, of its installation, or
/// of the working directory. kUsage where none of them is there.
std::string shipped_folder();
/// A path as a shipped recipe writes it, recipes/x: as it is where something is there; else what
/// comes with lft under this name, where that is there. Any other path stays as it is.
std::string or_shipped(const std::string& path);

}  // namespace lft::recipe
