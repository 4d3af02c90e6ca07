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
      "runs a step's batch under watch and names the op and module of the first value that is "
      "not finite; trains nothing, exits with 5 where it finds one");
  command.option(
      "--step", options->step,
      "the step whose batch is run, from 1; its weights are those of the newest checkpoint "
      "before it (default: the run's newest incident as lft replay runs it, with its "
      "own recipe; 1 where the run has none)");
  command.run([options] { debug::debug_nan(options->read(), options->step); });
}

}  // namespace lft::cli
