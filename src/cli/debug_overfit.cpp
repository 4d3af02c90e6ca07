// lft debug overfit: one batch, learnt by heart, or the reason why not.
#include "src/cli/commands.h"
#include "src/cli/recipe_args.h"
#include "src/debug/isolate/overfit.h"

namespace lft::cli {

void add_debug_overfit(Command& debug) {
  struct Options : RecipeArgs {
    debug::OverfitOptions overfit;
  };
  auto [command, options] = recipe_command<Options>(
      debug, "overfit",
      "learn one batch of 8 samples by heart; where that fails, which suspect it is (exit 5)");
  command.option("--steps", options->overfit.steps, "updates on the batch")
      .range(3, 1000000)
      .show_default();
  command.option("--out", options->overfit.out,
                 "folder for overfit.html; default: debug-overfit in the recipe's output_dir");
  command.footer(
      "The batch is the first of the training order. No dropout, no weight decay, a constant "
      "learning rate. Near zero is below 0.05 nats or\n"
      "5 % of the first loss. Suspects, each with numbers: the adapter of lora.init_from, values "
      "that are not finite, a module that puts out zeros only,\n"
      "a frozen layer, eps, clipping, alpha and dropout far from the usual, a learning rate too "
      "low or too high, a wrong reduction of the loss.\n"
      "Steps that end while the loss still falls, with no suspect, are unfinished: exit 0. "
      "Nothing but overfit.html is written.");
  command.run([options] {
    return exit_with(debug::overfit(options->read(), options->overfit), debug::overfit_error);
  });
}

}  // namespace lft::cli
