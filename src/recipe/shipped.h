// The bundled recipes, and the files that they refer to.
#pragma once
#include <string>
#include <vector>

namespace lft::recipe {

/// LFT_RECIPES, else recipes/ of the program's source directory, of its installation, or of the
/// working directory. kUsage if none of them exists.
std::string shipped_folder();
/// Resolves recipes/x: the path itself if it exists; else the bundled file of this name, if that
/// exists. Any other path is returned unchanged.
std::string resolve_bundled_path(const std::string& path);
/// Names of the bundled recipes as `lft recipe ls` prints them, sorted; empty without their folder.
std::vector<std::string> shipped_names();
/// The file of a recipe that is given as a path or by the name of a bundled recipe: `given` if it
/// is a file or names none.
std::string recipe_file(const std::string& given);

}  // namespace lft::recipe
