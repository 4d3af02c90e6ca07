// Folders as runs leave them, without training.
#pragma once
#include <string>
#include <vector>

#include "src/recipe/recipe.h"
#include "support/temp_dir.h"

namespace lft::test {

inline recipe::Recipe small_recipe(const std::string& output_dir) {
  recipe::Recipe recipe;
  recipe.output_dir = output_dir;
  recipe.model.path = "model";
  recipe.data.train = "rows.json";
  recipe.data.eval = "held_out.json";
  recipe.train.eval_every_steps = 2;
  return recipe;
}

inline std::string start_line(int64_t total) {
  return "{\"event\":\"start\",\"step\":0,\"folder\":\"/\",\"total_steps\":" +
         std::to_string(total) + "}\n";
}

inline std::string step_line(int64_t step) {
  return "{\"step\":" + std::to_string(step) +
         ",\"loss\":2.5,\"lr\":0.001,\"grad_norm\":1,\"tokens\":10,\"step_s\":0.5}\n";
}

inline std::string eval_line(int64_t step, double loss, const std::string& more = "") {
  return "{\"event\":\"eval\",\"step\":" + std::to_string(step) +
         ",\"eval_loss\":" + std::to_string(loss) + ",\"samples\":3" + more + "}\n";
}

inline std::string done_line(int64_t step, int64_t saved) {
  return "{\"event\":\"done\",\"step\":" + std::to_string(step) +
         ",\"saved_step\":" + std::to_string(saved) + "}\n";
}

/// Writes the recipe and the metrics of a run into `name` below the folder.
inline std::string write_run(const TempDir& dir, const std::string& name,
                             const recipe::Recipe& recipe, const std::string& metrics) {
  dir.write(name + "/recipe.resolved.yaml", recipe::dump_recipe(recipe));
  dir.write(name + "/metrics.jsonl", metrics);
  return dir.file(name);
}

}  // namespace lft::test
