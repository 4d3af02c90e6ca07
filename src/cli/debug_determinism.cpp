#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <vector>

#include "src/cli/debug.h"
#include "src/debug/determinism.h"
#include "src/io/files.h"
#include "src/recipe/recipe.h"

namespace lft::cli {
namespace {

struct Options {
  std::string recipe, out;
  std::vector<std::string> sets;
  int64_t steps = 5;
};

/// What `determinism` runs in each of its processes.
void add_trace(CLI::App& debug) {
  auto options = std::make_shared<Options>();
  CLI::App* command = debug.add_subcommand("trace", "hashes of every tensor of the first steps")->group("");
  command->add_option("recipe", options->recipe)->required();
  command->add_option("--steps", options->steps);
  command->add_option("--out", options->out)->required();
  command->callback(
      [options] { write_file_atomic(options->out, trace_text(trace_steps(read_recipe(options->recipe), {.steps = options->steps}))); });
}

}  // namespace

void add_debug_determinism(CLI::App& debug) {
  add_trace(debug);
  auto options = std::make_shared<Options>();
  CLI::App* command = debug.add_subcommand(
      "determinism",
      "runs the first steps twice, in two processes, and once with other data workers; exits with 0 where every bit is equal, "
      "with 5 and the first step, module and tensor where they part; writes nothing");
  command->add_option("recipe", options->recipe, "the recipe, a YAML file")->required();
  command->add_option("--set", options->sets, "key.path=value: overrides one field of the recipe; may be repeated")->take_all();
  command->add_option("--steps", options->steps, "how many steps")
      ->check(CLI::Range(int64_t{1}, int64_t{1'000'000}))
      ->capture_default_str();
  command->callback([options] {
    const int code = check_determinism(read_recipe(options->recipe, options->sets), {.steps = options->steps});
    if (code != 0) throw CLI::RuntimeError(code);
  });
}

}  // namespace lft::cli
