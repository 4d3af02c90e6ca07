// lft debug overfit: one batch, learnt by heart, or the reason why not.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "src/base/signals.h"
#include "src/cli/debug.h"
#include "src/debug/overfit.h"

namespace lft::cli {

void add_debug_overfit(CLI::App& debug) {
  struct Options {
    std::string recipe;
    std::vector<std::string> sets;
    OverfitOptions overfit;
  };
  auto options = std::make_shared<Options>();
  CLI::App* command =
      debug.add_subcommand("overfit", "learn one batch of 8 samples by heart; where that fails, which suspect it is (exit 5)");
  command->add_option("recipe", options->recipe, "the recipe, a YAML file")->required();
  command->add_option("--set", options->sets, "key.path=value: overrides one field of the recipe; may be repeated")->take_all();
  command->add_option("--steps", options->overfit.steps, "updates on the batch")->check(CLI::Range(3, 1000000))->capture_default_str();
  command->add_option("--out", options->overfit.out, "folder for overfit.html; default: debug-overfit in the recipe's output_dir");
  command->footer(
      "The batch is the first of the training order. No dropout, no weight decay, a constant learning rate. Near zero is below 0.05 nats "
      "or\n"
      "5 % of the first loss. Otherwise, in order: a frozen layer, a learning rate too low, a wrong reduction of the loss, each with "
      "numbers.\n"
      "Nothing but overfit.html is written.");
  command->callback([options] {
    options->overfit.print = [](const std::string& line) {
      std::printf("%s\n", line.c_str());
      std::fflush(stdout);
    };
    const OverfitReport report = overfit(read_recipe(options->recipe, options->sets), options->overfit);
    if (report.signal != 0) throw CLI::RuntimeError(stop_exit_code(report.signal));
    if (!report.healthy()) throw Error(ErrorKind::kNumeric, overfit_error(report));
  });
}

}  // namespace lft::cli
