#include "src/runs/sweep.h"

#include "src/cli/commands.h"
#include "src/cli/recipe_args.h"
#include "src/debug/trial/child_process.h"

namespace lft::cli {

void add_sweep(Command& app) {
  struct Options : RecipeArgs {
    std::vector<std::string> over;
    std::string out;
    bool halve = false;
  };
  auto [command, options] = recipe_command<Options>(
      app, "sweep",
      "train a recipe with several values of some fields, one run after the other; started again, "
      "it skips finished runs and resumes the others");
  command
      .option("--over", options->over,
              "key.path=value,value,...: the values of one field; may be repeated, for all "
              "combinations")
      .required()
      .one_each();
  command.option("--out", options->out,
                 "folder that contains the runs (default: the recipe's output_dir with -sweep)");
  command.flag("--halve", options->halve,
               "stop the worse half after a third of the steps, at an evaluation");
  command.run([options] {
    runs::SweepOptions sweep{.recipe = options->path,
                             .sets = options->sets,
                             .axes = {},
                             .out = options->out,
                             .halve = options->halve};
    for (const std::string& over : options->over) sweep.axes.push_back(runs::read_axis(over));
    return runs::sweep(sweep, debug::run_self_shown);
  });
}

}  // namespace lft::cli
