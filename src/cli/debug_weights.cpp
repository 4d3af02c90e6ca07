// lft debug weights: what changed between two sets of weights, by how much, module by module.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "src/cli/debug.h"
#include "src/debug/weights.h"

namespace lft::cli {
namespace {

constexpr char kFooter[] =
    "A run saves a checkpoint before its first step, so that\n"
    "  lft debug weights OUT/checkpoints/step-0 OUT\n"
    "says what training has changed so far; a module that did not change is one that did not learn.";

}  // namespace

void add_debug_weights(CLI::App& debug) {
  struct Options {
    std::string a, b;
    bool expect_change = false;
  };
  auto options = std::make_shared<Options>();
  CLI::App* command =
      debug.add_subcommand("weights", "what differs between two sets of weights, module by module, the largest change first");
  const char* what = "an adapter, a checkpoint step, an incident, an output_dir (its adapter, model or newest step) or a model directory";
  command->add_option("A", options->a, what)->required();
  command->add_option("B", options->b, what)->required();
  command->add_flag("--expect-change", options->expect_change, "exit with 5 when nothing changed");
  command->footer(kFooter);
  command->callback([options] {
    const WeightsReport report = compare_weights(options->a, options->b);
    for (const std::string& line : weights_lines(report)) std::printf("%s\n", line.c_str());
    std::fflush(stdout);
    if (options->expect_change && !report.changed()) throw Error(ErrorKind::kNumeric, unchanged_error(report));
  });
}

}  // namespace lft::cli
