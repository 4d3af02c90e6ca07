#include "src/train/run/check.h"

#include <memory>

#include "src/cli/commands.h"
#include "src/cli/recipe_args.h"

namespace lft::cli {

void add_check(Command& app) {
  auto recipe = std::make_shared<RecipeArgs>();
  Command command = app.subcommand(
      "check",
      "everything train does before its first step; writes nothing, exits with 0 if it will train");
  add_recipe_args(command, *recipe);
  command.run([recipe] { return train::check(recipe->read()); });
}

}  // namespace lft::cli
