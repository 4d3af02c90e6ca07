// Predicts a run's memory on GPUs of the usual sizes from the recipe and the model's config.json,
// without weights, data or a GPU.
#pragma once
#include <string>
#include <vector>

#include "src/recipe/recipe.h"

namespace lft::train {

struct PlannedSetting {
  std::string changes;  // of the recipe, in the form of --set; empty: unchanged
  double peak = 0;      // bytes
};
struct PlanAhead {
  std::string model, rows;               // descriptions of the model and rows
  std::vector<PlannedSetting> settings;  // the recipe first, then those that save at least 1%
  std::vector<PlannedSetting> cpu = {};  // the recipe on a CPU; `changes` is the compute dtype
  double cpu_features = 0;  // bytes there for image features (data.image_cache_mb), in addition:
                            // those of as many images as fit
};

/// For rows of `tokens` positions (0: data.max_tokens, at most the model's), each with an image. A
/// model.path without config.json may be a published checkpoint (known_models.h). kUsage if
/// `tokens` does not fit an image and a reply, or exceeds the model's positions.
PlanAhead plan_ahead(const recipe::Recipe& recipe, int64_t tokens);
/// The peak of the recipe as it is on a GPU, in bytes: the first of plan_ahead(recipe, 0).settings.
double peak_ahead(const recipe::Recipe& recipe);

/// A table with one setting per line: its peak and the cards that fit it.
std::vector<std::string> plan_ahead_lines(const PlanAhead& plan);

}  // namespace lft::train
