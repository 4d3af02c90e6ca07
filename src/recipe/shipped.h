// The bundled recipes, and the files that they refer to.
#pragma once
#include <string>
#include <vector>

namespace lft::recipe {

/// LFT_RECIPES, else recipes/ of the program's source directory, of its installation, or of the
/// working directory. kUsage if none of them exists.
std::string shipped_folder();
inline constexpr char kRecipeSuffix[] = ".yaml";
/// The names of the bundled recipes, which are their paths without the suffix, sorted.
std::vector<std::string> shipped_names();
/// The file of a recipe given by path or by the name of a bundled one. A file of the working
/// directory takes precedence over a bundled recipe.
std::string resolve_recipe(const std::string& path);
/// Resolves recipes/x: the path itself if it exists; else the bundled file of this name, if that
/// exists. Any other path is returned unchanged.
std::string resolve_bundled_path(const std::string& path);

}  // namespace lft::recipe
