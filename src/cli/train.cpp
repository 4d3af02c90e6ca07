#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <vector>

#include "src/cli/commands.h"
#include "src/recipe/recipe.h"
#include "src/train/trainer.h"

namespace lft::cli {

void add_train(CLI::App& app) {
  struct Options {
    std::string recipe;
    std::vector<std::string> sets;
    bool resume = false;
  };
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("train", "train as a recipe says; adapter, metrics and report.html go to its output_dir");
  command->add_option("recipe", options->recipe, "the recipe, a YAML file")->required();
  command->add_option("--set", options->sets, "key.path=value: overrides one field of the recipe; may be repeated")->take_all();
  command->add_flag("--resume", options->resume,
                    "go on from the newest checkpoint that verifies; from the beginning where there is none yet");
  command->callback([options] {
    const int code = train(read_recipe(options->recipe, options->sets), {.resume = options->resume});
    if (code != 0) throw CLI::RuntimeError(code);
  });
}

}  // namespace lft::cli
