#include "src/cli/infer_target.h"

#include "kernels/common/error.h"
#include "src/base/errors.h"
#include "src/base/text.h"
#include "src/cli/adapter_base.h"
#include "src/hf/adapter/adapter.h"
#include "src/io/files.h"
#include "src/io/run_folder.h"
#include "src/recipe/shipped.h"
#include "src/runs/runs.h"
#include "src/train/inputs/model_shapes.h"

namespace lft::cli {
namespace {

/// "it is running, at step 20 of 500", for a run without a result.
std::string progress_of(const std::string& run) {
  if (!runs::is_run(run)) return "no run";
  const runs::RunInfo info = runs::read_run(run);
  std::string text = std::string("the run is ") + runs::state_word(info.state) + ", at step " +
                     std::to_string(info.metrics.step);
  if (info.metrics.total_steps > 0) text += " of " + std::to_string(info.metrics.total_steps);
  return text;
}

void take_run(const std::string& run, InferOptions& options) {
  if (!options.model.empty()) return;  // the base alone
  const std::string adapter = io::adapter_folder(run), model = io::model_folder(run);
  if (adapter != run) {
    options.adapter = adapter;
  } else if (model != run) {
    options.model = model;
  } else {
    refuse(ErrorKind::kUsage, "no adapter and no model in this run", run, progress_of(run),
           "what lft train writes there at its end",
           "lft status " + shell_word(run) + " shows the run; --model DIR uses a model alone");
  }
}

void take_target(InferOptions& options) {
  const std::string& target = options.target;
  switch (target_kind(target)) {
    case TargetKind::kNone:
      return;
    case TargetKind::kAdapter:
      if (options.adapter.empty()) options.adapter = target;
      return;
    case TargetKind::kModel:
      if (options.model.empty()) options.model = recipe::resolve_bundled_path(target);
      return;
    case TargetKind::kRun:
      if (options.adapter.empty()) take_run(target, options);
      return;
    case TargetKind::kRecipe:
      take_trained(recipe::read_recipe(target), options);
      return;
  }
}

}  // namespace

TargetKind target_kind(const std::string& target) {
  if (target.empty()) return TargetKind::kNone;
  const std::string path = recipe::resolve_bundled_path(target);
  if (io::is_directory(path)) {
    for (const char* file : {"/adapter_config.json", "/parts.safetensors"})
      if (io::path_exists(path + file)) return TargetKind::kAdapter;
    const bool run = io::adapter_folder(path) != path || io::model_folder(path) != path;
    return run || runs::is_run(path) ? TargetKind::kRun : TargetKind::kModel;
  }
  if (!io::path_exists(recipe::recipe_file(target))) {
    refuse(ErrorKind::kUsage, "no such run, adapter, model or recipe", target, {},
           "the folder of a run, an adapter or a model, or a recipe",
           "lft runs lists the runs below a folder, lft recipe ls the bundled recipes");
  }
  return TargetKind::kRecipe;
}

void settle_target(InferOptions& options) {
  take_target(options);
  const TargetKind kind = target_kind(options.adapter);
  if (kind == TargetKind::kRun || kind == TargetKind::kRecipe) {
    InferOptions named;
    named.target = options.adapter;
    take_target(named);
    options.adapter = named.adapter;
    if (options.model.empty()) options.model = named.model;
  }
  if (options.model.empty() && !options.adapter.empty())
    options.model = base_of(hf::AdapterDir::open(options.adapter), "");
}

void take_trained(const recipe::Recipe& recipe, InferOptions& options) {
  if (!options.model.empty()) return;
  const std::string product = train::product_of(recipe),
                    trained = recipe.output_dir + "/" + product;
  const bool whole = product == "model";
  options.model = whole && options.adapter.empty() ? trained : recipe.model.path;
  if (!whole && options.adapter.empty()) options.adapter = trained;
  if ((whole ? options.model : options.adapter) != trained || io::is_directory(trained)) return;
  refuse(ErrorKind::kUsage,
         std::string(whole ? "no model in " : "no adapter in ") + recipe.output_dir, "output_dir",
         "no folder " + trained + "; " + progress_of(recipe.output_dir),
         "what lft train writes there at its end",
         std::string(whole ? "" : "--adapter DIR evaluates another adapter; ") + "--model " +
             recipe.model.path + " evaluates the base alone");
}

}  // namespace lft::cli
