#include "src/train/inputs/run_objective.h"

#include <algorithm>

#include "models/objective/preference.h"

namespace lft::train {

std::shared_ptr<const objective::Objective> make_objective(const recipe::Recipe& recipe) {
  const recipe::Recipe::Objective& asked = recipe.objective;
  if (!learns_from_pairs(recipe))
    return {std::shared_ptr<void>(), &objective::supervised_nll()};  // static: not deleted
  const auto& kinds = objective::pair_objectives();
  const std::string name = asked.name.word();
  const auto kind = std::ranges::find(kinds, name, &objective::PairObjective::name);
  return objective::make_pair_objective(*kind,
                                        {.beta = asked.beta > 0 ? asked.beta : kind->beta,
                                         .label_smoothing = asked.label_smoothing,
                                         .margin = asked.margin},
                                        asked.sft_weight);
}

}  // namespace lft::train
