#include "src/cli/commands.h"
#include "src/cli/recipe_args.h"
#include "src/debug/nan/nan_run.h"

namespace lft::cli {

void add_debug_nan(Command& debug) {
  struct Options : RecipeArgs {
    int64_t step = 1;
  };
  auto [command, options] = recipe_command<Options>(
      debug, "nan",
      "runs a step's batch under watch and names the op and module of the first value that is "
      "not finite; trains nothing, exits with 5 where it finds one");
  command.option("--step", options->step,
                 "whose batch, from 1; the newest checkpoint before it gives the weights");
  command.run([options] { debug::debug_nan(options->read(), options->step); });
}

}  // namespace lft::cli
