#include "src/train/run/check.h"

#include "src/cli/commands.h"
#include "src/cli/recipe_args.h"

namespace lft::cli {

void add_check(Command& app) {
  auto [command, recipe] = recipe_command<RecipeArgs>(
      app, "check",
      "everything train does before its first step; writes nothing, exits with 0 if it will train");
  command.run([recipe] { return train::check(recipe->read()); });
}

}  // namespace lft::cli
