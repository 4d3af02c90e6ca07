#include "src/train/check/check.h"

#include "kernels/common/error.h"
#include "src/base/log.h"
#include "src/cli/commands.h"
#include "src/cli/recipe_args.h"
#include "src/io/files.h"
#include "src/train/memory/model_table.h"
#include "src/train/memory/plan_ahead.h"

namespace lft::cli {
namespace {

struct CheckArgs : RecipeArgs {
  bool plan = false;
  int64_t tokens = 0;
};

/// Instead of a recipe, `asked` may name a published checkpoint: planned is its family's recipe.
int plan(RecipeArgs asked, int64_t tokens) {
  const std::string recipe = io::path_exists(asked.path) ? "" : train::family_recipe(asked.path);
  if (!recipe.empty()) {
    print_line("recipe " + recipe + " with model.path=" + asked.path);
    asked.sets.insert(asked.sets.begin(), "model.path=" + asked.path);
    asked.path = recipe;
  }
  print_lines(train::plan_ahead_lines(train::plan_ahead(asked.read(), tokens)));
  return 0;
}

}  // namespace

void add_check(Command& app) {
  auto [command, recipe] =
      recipe_command<CheckArgs>(app, "check",
                                "do everything that train does before its first step; writes "
                                "nothing, exits with 0 if it will train");
  command.flag(
      "--plan", recipe->plan,
      "only estimate the memory on GPUs of 24, 40, 80 and 141 GB, by setting, from "
      "config.json or from the name of a published checkpoint that is not downloaded yet; the "
      "recipe may also be such a name, which is planned with the recipe of its family");
  command
      .option("--tokens", recipe->tokens,
              "with --plan: tokens in a row, including image positions (default: data.max_tokens)")
      .range(1, 1 << 24);
  command.run([recipe] {
    if (!recipe->plan && recipe->tokens > 0)
      refuse(ErrorKind::kUsage, "--tokens belongs to --plan", {}, "--tokens without --plan", {},
             "add --plan, or leave --tokens out");
    return recipe->plan ? plan(*recipe, recipe->tokens) : train::check(recipe->read());
  });
}

}  // namespace lft::cli
