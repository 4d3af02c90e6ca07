#include "src/debug/inspect/summary.h"

#include <memory>
#include <string>

#include "kernels/common/error.h"
#include "src/cli/commands.h"
#include "src/cli/recipe_args.h"
#include "src/debug/inspect/summary_print.h"
#include "src/hf/known_models.h"
#include "src/io/files.h"
#include "src/io/run_folder.h"

namespace lft::cli {
namespace {

struct SummaryArgs {
  RecipeArgs model;  // or a model directory, without --set
  debug::SummaryOptions batch;
};

debug::Summary summarize(const SummaryArgs& options) {
  const std::string& path = options.model.path;
  const bool named = !io::path_exists(path) && !hf::known_config(path).is_null();
  if (!io::is_directory(path) && !named)
    return debug::summarize_run(options.model.read(), options.batch);
  if (!options.model.sets.empty()) {
    refuse(ErrorKind::kUsage, "--set needs a recipe", path, "a model directory",
           "a recipe, a YAML file", "leave --set out, or give the recipe of a run on this model");
  }
  const bool weights = io::path_exists(path + "/model.safetensors") ||
                       io::path_exists(path + "/model.safetensors.index.json");
  return debug::summarize_model(weights ? hf::ModelDir::open(path) : hf::ModelDir::shapes_of(path),
                                options.batch);
}

}  // namespace

void add_summary(Command& app) {
  auto options = std::make_shared<SummaryArgs>();
  Command command = app.subcommand("summary",
                                   "show input and output shape, parameters, multiply-adds and "
                                   "memory of every module; loads no weights, computes nothing");
  command
      .option("MODEL_DIR|RECIPE", options->model.path,
              "model directory in HF layout (config.json is enough), the name of a published "
              "model, or a recipe (its first batch, with adapters)")
      .required()
      .meaning(io::model_folder);
  add_set_option(command, options->model);
  command.option("--batch", options->batch.batch, "rows in a synthetic batch").range(1, 1 << 20);
  command
      .option("--tokens", options->batch.tokens,
              "tokens in a row of a synthetic batch, including image positions")
      .range(1, 1 << 24);
  command.run([options] { print_lines(debug::summary_lines(summarize(*options))); });
}

}  // namespace lft::cli
