// lft debug bare: the run without its parts, then with one more at a time.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "src/base/signals.h"
#include "src/cli/debug.h"
#include "src/debug/bare.h"

namespace lft::cli {

void add_debug_bare(CLI::App& debug) {
  struct Options {
    std::string recipe;
    std::vector<std::string> sets;
    BareOptions bare;
  };
  auto options = std::make_shared<Options>();
  CLI::App* command =
      debug.add_subcommand("bare", "strip a run to its core and put its parts back one by one: which of them brings the failure (exit 5)");
  command->add_option("recipe", options->recipe, "the recipe, a YAML file")->required();
  command->add_option("--set", options->sets, "key.path=value: overrides one field of the recipe; may be repeated")->take_all();
  command->add_option("--steps", options->bare.steps, "updates in each trial")->check(CLI::Range(3, 1000000))->capture_default_str();
  command->footer(
      "The core computes in FP32 at a constant learning rate, without dropout, clipping, weight decay, accumulation, activation "
      "checkpointing\n"
      "and files. A trial is healthy when every step is finite, every trained module moves and the loss falls. Each has a fresh model. "
      "The\n"
      "last one is lft train itself, in debug-bare under the recipe's output_dir, which is deleted afterwards.");
  command->callback([options] {
    options->bare.print = [](const std::string& line) {
      std::printf("%s\n", line.c_str());
      std::fflush(stdout);
    };
    const BareReport report = bare(read_recipe(options->recipe, options->sets), options->bare);
    if (report.signal != 0) throw CLI::RuntimeError(stop_exit_code(report.signal));
    if (!report.healthy()) throw Error(ErrorKind::kNumeric, bare_error(report));
  });
}

}  // namespace lft::cli
