#include "src/cli/recipe_args.h"

namespace lft::cli {

Option add_recipe_args(Command& command, RecipeArgs& args, const std::string& help) {
  command.option("recipe", args.path, help).required();
  return add_set_option(command, args);
}

Option add_set_option(Command& command, RecipeArgs& args) {
  return command
      .option("--set", args.sets,
              "key.path=value: override one field of the recipe; may be repeated")
      .one_each();
}

}  // namespace lft::cli
