// A run whose held-out loss falls and then rises, so that its best evaluation is not its
// last, and readers of its evaluations.
#pragma once
#include <string>
#include <vector>

#include "train/run_files.h"

namespace lft::test {
using namespace lft::recipe;

/// Trained at a rate that first learns and then diverges from the held-out rows, whose answers
/// differ from the training rows'. Evaluates after every step.
inline Recipe overfitting(const TinyRun& run, const std::string& out, int64_t steps) {
  Json rows = Json::parse(slurp(run.dir().file("rows.json")));
  for (Json& row : rows) row["conversations"][1]["value"] = "gnu";
  run.dir().write("held_out.json", rows.dump());
  Recipe recipe = run.recipe(out);
  recipe.data.eval = run.dir().file("held_out.json");
  recipe.data.shuffle = false;
  recipe.lora.dropout = 0;
  recipe.optim.lr = 3e-2;
  recipe.optim.schedule = "constant";
  recipe.optim.warmup_ratio = 0;
  recipe.train.max_steps = steps;
  recipe.train.eval_every_steps = 1;
  recipe.train.keep_best = "eval_loss";
  recipe.checkpoint = {.every_steps = 2, .keep = 2, .at_step_zero = false};
  return recipe;
}

inline std::vector<double> eval_losses(const Recipe& recipe) {
  std::vector<double> losses;
  for (const Json& line : events(recipe.output_dir, "eval"))
    losses.push_back(line["eval_loss"].get<double>());
  return losses;
}

inline std::string adapter_bytes(const Recipe& recipe) {
  return slurp(recipe.output_dir + "/adapter/adapter_model.safetensors");
}

}  // namespace lft::test
