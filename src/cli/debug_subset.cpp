// lft debug subset: the recipe on the first rows of its data.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "src/cli/debug.h"
#include "src/debug/subset.h"

namespace lft::cli {

void add_debug_subset(CLI::App& debug) {
  struct Options {
    std::string recipe;
    std::vector<std::string> sets;
    int64_t rows = 100;
  };
  auto options = std::make_shared<Options>();
  CLI::App* command = debug.add_subcommand("subset", "train on the first rows only, into debug-subset-N under the recipe's output_dir");
  command->add_option("recipe", options->recipe, "the recipe, a YAML file")->required();
  command->add_option("-n,--rows", options->rows, "rows to train on")->check(CLI::Range(1, 1000000000))->capture_default_str();
  command->add_option("--set", options->sets, "key.path=value: overrides one field of the recipe; may be repeated")->take_all();
  command->footer("Held out is data.eval; without it, as many rows behind the first. Exit codes are those of lft train.");
  command->callback([options] {
    const SubsetReport report = train_subset(read_recipe(options->recipe, options->sets), options->rows);
    if (report.code != 0) throw CLI::RuntimeError(report.code);
    for (const std::string& line : subset_lines(report)) std::printf("%s\n", line.c_str());
  });
}

}  // namespace lft::cli
