// lft debug memory: what a step's memory is for, as text and as a picture.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "src/base/signals.h"
#include "src/cli/debug.h"
#include "src/cli/outputs.h"
#include "src/debug/memory.h"

namespace lft::cli {

void add_debug_memory(CLI::App& debug) {
  struct Options {
    std::string recipe;
    std::vector<std::string> sets;
    MemoryOptions memory;
  };
  auto options = std::make_shared<Options>();
  CLI::App* command = debug.add_subcommand(
      "memory", "records every allocation of the first steps: the peak by use and by module, a picture, and what every step leaves behind");
  command->add_option("recipe", options->recipe, "the recipe, a YAML file")->required();
  command->add_option("--set", options->sets, "key.path=value: overrides one field of the recipe; may be repeated")->take_all();
  command->add_option("--steps", options->memory.steps, "how many steps")->check(CLI::Range(1, 1000))->capture_default_str();
  command->add_option("--out", options->memory.out, "the picture, an HTML file")->capture_default_str();
  command->footer(
      "Exits with 5 where every step leaves tensors behind. On a GPU a snapshot for pytorch.org/memory_viz lies beside the picture, as\n"
      ".pickle. Nothing is written into the recipe's output_dir.");
  command->callback([options] {
    options->memory.print = [](const std::string& line) {
      std::printf("%s\n", line.c_str());
      std::fflush(stdout);
    };
    const Recipe recipe = read_recipe(options->recipe, options->sets);
    refuse_input("--out", options->memory.out, inputs_of(options->recipe, recipe));
    const MemoryReport report = debug_memory(recipe, options->memory);
    if (report.signal != 0) throw CLI::RuntimeError(stop_exit_code(report.signal));
    if (!report.picture.leaks.empty()) throw Error(ErrorKind::kNumeric, leak_error(report));
  });
}

}  // namespace lft::cli
