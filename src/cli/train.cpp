#include "src/cli/commands.h"
#include "src/cli/recipe_args.h"
#include "src/train/run/shared_run.h"
#include "src/train/run/trainer.h"

namespace lft::cli {

void add_train(Command& app) {
  struct Options : RecipeArgs {
    bool resume = false;
  };
  auto [command, options] = recipe_command<Options>(
      app, "train",
      "train a recipe; adapter, metrics and report.html are written to its output_dir");
  command.flag("--resume", options->resume,
               "continue from the newest checkpoint that verifies, or start if there is none");
  command.run([options] {
    const train::TrainOptions how{.resume = options->resume};
    const dist::Place place = dist::read_place(dist::process_environment());
    if (place.alone()) return train::train(options->read(), how);
    return train::train_as(
        place, [options] { return options->read(); }, how);
  });
}

}  // namespace lft::cli
