// lft debug overfit: overfits one batch, or names the reason for failing.
#include "src/cli/commands.h"
#include "src/cli/recipe_args.h"
#include "src/debug/isolate/overfit.h"

namespace lft::cli {

void add_debug_overfit(Command& debug) {
  struct Options : RecipeArgs {
    debug::OverfitOptions overfit;
  };
  auto [command, options] = recipe_command<Options>(
      debug, "overfit", "overfit one batch of 8 samples; if that fails, name the suspect (exit 5)");
  command.option("--steps", options->overfit.steps, "optimizer steps on the batch")
      .range(3, 1000000)
      .show_default();
  command.option("--out", options->overfit.out,
                 "directory for overfit.html (default: debug-overfit in the recipe's output_dir)");
  command.footer(
      "The batch is the first of the training order. There is no dropout, no weight decay, and a "
      "constant learning rate. Near zero is below 0.05 nats or\n5 % of the first loss. Suspects, "
      "each with numbers: the adapter of lora.init_from, values that are not finite, a module that "
      "outputs only zeros,\na frozen layer, unusual eps, clipping, alpha and dropout, a learning "
      "rate that is too low or too high, a wrong reduction of the loss.\nIf the loss still falls "
      "at the end and there is no suspect, the result is unfinished (exit 0). Only overfit.html is "
      "written.");
  command.run([options] {
    return exit_with(debug::overfit(options->read(), options->overfit), debug::overfit_error);
  });
}

}  // namespace lft::cli
