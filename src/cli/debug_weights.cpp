// lft debug weights: what changed between two sets of weights, by how much, module by module.
#include <memory>

#include "src/cli/commands.h"
#include "src/debug/inspect/weights.h"

namespace lft::cli {

void add_debug_weights(Command& debug) {
  struct Options {
    std::string a, b;
    bool expect_change = false;
  };
  auto options = std::make_shared<Options>();
  Command command = debug.subcommand(
      "weights", "compare two sets of weights by module, the largest change first");
  const char* what =
      "an adapter, a checkpoint step, an incident, an output_dir (its adapter, model or newest "
      "step) or a model directory";
  command.option("A", options->a, what).required();
  command.option("B", options->b, what).required();
  command.flag("--expect-change", options->expect_change, "exit with 5 if nothing changed");
  command.footer(
      "A run saves a checkpoint before its first step, so that\n  lft debug weights "
      "OUT/checkpoints/step-0 OUT\nshows what training has changed so far; a module that did not "
      "change has not learned.");
  command.run([options] {
    const debug::WeightsReport report = debug::compare_weights(options->a, options->b);
    print_lines(debug::weights_lines(report));
    if (options->expect_change && !report.changed())
      throw Error(ErrorKind::kNumeric, debug::unchanged_error(report));
  });
}

}  // namespace lft::cli
