#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <vector>

#include "src/cli/debug.h"
#include "src/debug/nan_run.h"

namespace lft::cli {

void add_debug_nan(CLI::App& debug) {
  struct Options {
    std::string recipe;
    std::vector<std::string> sets;
    int64_t step = 1;
  };
  auto options = std::make_shared<Options>();
  CLI::App* command = debug.add_subcommand("nan",
                                           "runs a step's batch under watch and names the op and module of the first value that is "
                                           "not finite; trains nothing, exits with 5 where it finds one");
  command->add_option("recipe", options->recipe, "the recipe, a YAML file")->required();
  command->add_option("--set", options->sets, "key.path=value: overrides one field of the recipe; may be repeated")->take_all();
  command->add_option("--step", options->step, "whose batch, from 1; the newest checkpoint before it gives the weights");
  command->callback([options] { debug_nan(read_recipe(options->recipe, options->sets), options->step); });
}

}  // namespace lft::cli
