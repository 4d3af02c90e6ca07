// A command may replace its earlier output, but never an input.
#pragma once
#include <string>
#include <vector>

#include "src/recipe/recipe.h"

namespace lft::cli {

/// Files and directories; empty names are ignored. In image directories only the images count:
/// results may be written next to them.
struct Inputs {
  std::vector<std::string> paths;
  std::vector<std::string> image_roots;
};
Inputs inputs_of(const std::string& recipe_file, const recipe::Recipe& recipe);

/// Throws kUsage if `path`, given as `option`, is one of the inputs or inside one.
void refuse_input(const std::string& option, const std::string& path, const Inputs& inputs);

}  // namespace lft::cli
