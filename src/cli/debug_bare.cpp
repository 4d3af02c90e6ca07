// lft debug bare: the run without optional features, then with one more at a time.
#include "src/cli/commands.h"
#include "src/cli/recipe_args.h"
#include "src/debug/isolate/bare.h"

namespace lft::cli {

void add_debug_bare(Command& debug) {
  struct Options : RecipeArgs {
    debug::BareOptions bare;
  };
  auto [command, options] =
      recipe_command<Options>(debug, "bare",
                              "disable optional features and re-enable them one at a time to find "
                              "which one causes the failure (exit 5)");
  command.option("--steps", options->bare.steps, "optimizer steps in each trial")
      .range(3, 1000000)
      .show_default();
  command.footer(
      "The core computes in FP32 at a constant learning rate, without dropout, clipping, weight "
      "decay, accumulation, activation checkpointing\nand files, and with usual values of eps and "
      "alpha if the recipe's are far from them. A trial is healthy if every step is finite, every "
      "trained module changes and the loss falls. Each trial has a new model. The\nlast trial is "
      "lft train itself, in debug-bare in the recipe's output_dir, which is deleted afterwards.");
  command.run([options] {
    return exit_with(debug::bare(options->read(), options->bare), debug::bare_error);
  });
}

}  // namespace lft::cli
