#include <cstdint>
#include <optional>

#include "src/cli/commands.h"
#include "src/cli/recipe_args.h"
#include "src/debug/nan/nan_run.h"

namespace lft::cli {

void add_debug_nan(Command& debug) {
  struct Options : RecipeArgs {
    std::optional<int64_t> step;
  };
  auto [command, options] = recipe_command<Options>(
      debug, "nan",
      "run the batch of a step and name the op and module of the first value that is not finite; "
      "trains nothing, exits with 5 if it finds one");
  command.option(
      "--step", options->step,
      "step to examine, from 1; weights come from the newest checkpoint before it (default: the "
      "run's newest incident, as in lft replay, or step 1 if there is none)");
  command.run([options] { debug::debug_nan(options->read(), options->step); });
}

}  // namespace lft::cli
