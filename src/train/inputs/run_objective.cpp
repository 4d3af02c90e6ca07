#include "src/train/inputs/run_objective.h"

#include <algorithm>

#include "models/objective/kto.h"
#include "models/objective/preference.h"

namespace lft::train {

std::shared_ptr<const objective::Objective> make_objective(const recipe::Recipe& recipe) {
  const recipe::Recipe::Objective& asked = recipe.objective;
  if (learns_from_labels(recipe))
    return objective::make_kto({.beta = asked.beta > 0 ? asked.beta : objective::KtoOptions().beta,
                                .desirable_weight = asked.desirable_weight,
                                .undesirable_weight = asked.undesirable_weight});
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

int64_t rows_of_step(const recipe::Recipe& recipe) {
  const recipe::Recipe::Train& train = recipe.train;
  const int64_t accumulated =
      train.grad_accum > 0 ? train.grad_accum : train.global_batch / train.batch_size;
  return train.batch_size * std::max<int64_t>(1, accumulated);
}

}  // namespace lft::train
