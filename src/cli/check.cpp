#include "src/train/check/check.h"

#include "kernels/common/error.h"
#include "src/cli/commands.h"
#include "src/cli/recipe_args.h"
#include "src/train/memory/plan_ahead.h"

namespace lft::cli {
namespace {

struct CheckArgs : RecipeArgs {
  bool plan = false;
  int64_t tokens = 0;
};

}  // namespace

void add_check(Command& app) {
  auto [command, recipe] =
      recipe_command<CheckArgs>(app, "check",
                                "do everything that train does before its first step; writes "
                                "nothing, exits with 0 if it will train");
  command.flag("--plan", recipe->plan,
               "only estimate the memory on GPUs of 24, 40, 80 and 141 GB, by setting, from "
               "config.json or from the name of a published checkpoint that is not downloaded yet");
  command
      .option("--tokens", recipe->tokens,
              "with --plan: tokens in a row, including image positions (default: data.max_tokens)")
      .range(1, 1 << 24);
  command.run([recipe] {
    if (!recipe->plan && recipe->tokens > 0)
      refuse(ErrorKind::kUsage, "--tokens belongs to --plan", {}, "--tokens without --plan", {},
             "add --plan, or leave --tokens out");
    if (!recipe->plan) return train::check(recipe->read());
    print_lines(train::plan_ahead_lines(train::plan_ahead(recipe->read(), recipe->tokens)));
    return 0;
  });
}

}  // namespace lft::cli
