// The recipe of a command: its file, and the fields that --set changes.
#pragma once
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/common/error.h"
#include "src/base/signals.h"
#include "src/cli/command_line.h"
#include "src/recipe/recipe.h"

namespace lft::cli {

struct RecipeArgs {
  std::string path;
  std::vector<std::string> sets;
  recipe::Recipe read() const { return recipe::read_recipe(path, sets); }
};

/// Registers the recipe, which is required, then --set; returns --set.
Option add_recipe_args(Command& command, RecipeArgs& args,
                       const std::string& help =
                           "the recipe: a YAML file, or the name of a bundled one (lft recipe ls)");
/// Registers --set alone.
Option add_set_option(Command& command, RecipeArgs& args);

/// A subcommand with a recipe: `Options` is a RecipeArgs with further fields.
template <class Options>
std::pair<Command, std::shared_ptr<Options>> recipe_command(Command& app, const std::string& name,
                                                            const std::string& help) {
  const auto options = std::make_shared<Options>();
  Command command = app.subcommand(name, help);
  add_recipe_args(command, *options);
  return {command, options};
}

/// The exit of a diagnosis: 0 if the run is healthy, a signal's exit code, otherwise kNumeric.
template <class Report>
int exit_with(const Report& report, ErrorInfo (*describe)(const Report&)) {
  if (report.signal != 0) return stop_exit_code(report.signal);
  if (!report.healthy()) throw Error(ErrorKind::kNumeric, describe(report));
  return 0;
}

}  // namespace lft::cli
