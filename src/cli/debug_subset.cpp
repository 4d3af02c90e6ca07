// lft debug subset: the recipe on the first rows of its data.
#include <memory>

#include "src/cli/commands.h"
#include "src/cli/recipe_args.h"
#include "src/debug/isolate/subset.h"

namespace lft::cli {

void add_debug_subset(Command& debug) {
  struct Options : RecipeArgs {
    int64_t rows = 100;
  };
  auto options = std::make_shared<Options>();
  Command command = debug.subcommand(
      "subset",
      "train on the first rows only, with output in debug-subset-N in the recipe's output_dir");
  command
      .option("recipe", options->path,
              "the recipe: a YAML file, or the name of a bundled one (lft recipe ls)")
      .required();
  command.option("-n,--rows", options->rows, "number of rows").range(1, 1000000000).show_default();
  add_set_option(command, *options);
  command.footer(
      "The held-out rows are those of data.eval or data.eval_share; without them, the same number "
      "of rows after the first ones. Exit codes are those of lft train.");
  command.run([options] {
    const debug::SubsetReport report = debug::train_subset(options->read(), options->rows);
    if (report.code != 0) return report.code;
    print_lines(debug::subset_lines(report));
    return 0;
  });
}

}  // namespace lft::cli
