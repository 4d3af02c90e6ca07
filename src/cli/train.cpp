#include "src/cli/commands.h"
#include "src/cli/recipe_args.h"
#include "src/train/run/shared_run.h"
#include "src/train/run/trainer.h"

namespace lft::cli {

void add_train(Command& app) {
  struct Options : RecipeArgs {
    bool resume = false, first_third = false;
  };
  auto [command, options] = recipe_command<Options>(
      app, "train",
      "train a recipe; adapter, metrics and report.html are written to its output_dir");
  command.flag("--resume", options->resume,
               "continue from the newest checkpoint that verifies, or start if there is none");
  command.flag("--first-third", options->first_third).hidden();  // for lft sweep --halve
  command.run([options] {
    const train::TrainOptions how{.resume = options->resume, .first_third = options->first_third};
    const dist::Place place = dist::read_place(dist::process_environment());
    if (place.alone()) return train::train(options->read(), how);
    return train::train_as(
        place, [options] { return options->read(); }, how);
  });
}

}  // namespace lft::cli
