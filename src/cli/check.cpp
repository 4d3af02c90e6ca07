#include "src/train/check.h"

#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <vector>

#include "src/cli/commands.h"

namespace lft::cli {

void add_check(CLI::App& app) {
  struct Options {
    std::string recipe;
    std::vector<std::string> sets;
  };
  auto options = std::make_shared<Options>();
  CLI::App* command =
      app.add_subcommand("check", "everything train does before its first step; writes nothing, exits with 0 if it will train");
  command->add_option("recipe", options->recipe, "the recipe, a YAML file")->required();
  command->add_option("--set", options->sets, "key.path=value: overrides one field of the recipe; may be repeated")->take_all();
  command->callback([options] {
    const int code = check(read_recipe(options->recipe, options->sets));
    if (code != 0) throw CLI::RuntimeError(code);
  });
}

}  // namespace lft::cli
