// Predicts a run's memory on GPUs of the usual sizes from the recipe and the model's config.json,
// without weights, data or a GPU.
#pragma once
#include <string>
#include <vector>

#include "src/recipe/recipe.h"

namespace lft::train {

struct PlannedSetting {
  std::string changes;  // of the recipe, as --set takes them; empty: as it is
  double peak = 0;      // bytes
};
struct PlanAhead {
  std::string model, rows;               // what was planned for, in words
  std::vector<PlannedSetting> settings;  // the recipe first, then what takes less and costs more
};

/// Rows of `tokens` positions (0: data.max_tokens, at most the model's), each with an image. A
/// model.path without config.json may name a published checkpoint (known_models.h). kUsage for
/// tokens that hold no image and a reply, or are more than the model's positions.
PlanAhead plan_ahead(const recipe::Recipe& recipe, int64_t tokens);

/// A table: a setting a line, its peak, and which cards hold it.
std::vector<std::string> plan_ahead_lines(const PlanAhead& plan);

}  // namespace lft::train
