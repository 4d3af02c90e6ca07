#include "src/debug/summary.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "kernels/common/error.h"
#include "src/cli/commands.h"
#include "src/io/files.h"

namespace lft::cli {
namespace {

struct Options {
  std::string path;
  std::vector<std::string> sets;
  SummaryOptions batch;
};

Summary summarize(const Options& options) {
  if (!is_directory(options.path)) return summarize_run(read_recipe(options.path, options.sets), options.batch);
  if (!options.sets.empty()) {
    throw Error(ErrorKind::kUsage, {.what = "--set needs a recipe",
                                    .where = options.path,
                                    .found = "a model directory",
                                    .expected = "a recipe, a YAML file",
                                    .next = "leave --set out, or give the recipe of a run on this model"});
  }
  return summarize_model(ModelDir::open(options.path), options.batch);
}

}  // namespace

void add_summary(CLI::App& app) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand(
      "summary", "input and output shape, parameters, multiply-adds and memory of every module; loads no weights, computes nothing");
  command->add_option("MODEL_DIR|RECIPE", options->path, "model directory in HF layout, or a recipe: the run's first batch, with adapters")
      ->required();
  command->add_option("--set", options->sets, "key.path=value: overrides one field of the recipe; may be repeated")->take_all();
  command->add_option("--batch", options->batch.batch, "rows of a made-up batch")->check(CLI::Range(1, 1 << 20));
  command->add_option("--tokens", options->batch.tokens, "tokens a row of a made-up batch, image positions counted")
      ->check(CLI::Range(1, 1 << 24));
  command->callback([options] {
    for (const std::string& line : summary_lines(summarize(*options))) std::puts(line.c_str());
  });
}

}  // namespace lft::cli
