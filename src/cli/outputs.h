// What a command writes takes the place of its own earlier output, never of what it reads.
#pragma once
#include <string>
#include <vector>

#include "src/recipe/recipe.h"

namespace lft::cli {

/// Files and folders; empty names are none. Of folders of images only the images themselves:
/// results may lie beside them.
struct Inputs {
  std::vector<std::string> paths;
  std::vector<std::string> image_roots;
};
Inputs inputs_of(const std::string& recipe_file, const recipe::Recipe& recipe);

/// Throws kUsage where `path`, given as `option`, is one of the inputs or lies in one.
void refuse_input(const std::string& option, const std::string& path, const Inputs& inputs);

}  // namespace lft::cli
