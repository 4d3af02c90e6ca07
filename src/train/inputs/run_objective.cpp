#include "src/train/inputs/run_objective.h"

#include <algorithm>

#include "models/objective/kto.h"
#include "models/objective/preference.h"
#include "src/base/text.h"

namespace lft::train {
namespace {

bool asks_for_balance(const llama::LlamaConfig& text) {
  return text.experts.balances && std::ranges::find(text.sparse, true) != text.sparse.end();
}

}  // namespace

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

double balance_weight(const recipe::Recipe& recipe, const llama::LlamaConfig& text) {
  const bool supervised = recipe.objective.name == recipe::ObjectiveName::kSft;
  return supervised && asks_for_balance(text) ? text.experts.balance_coefficient : 0;
}

std::string describe_balance(const recipe::Recipe& recipe, const llama::LlamaConfig& text) {
  if (!asks_for_balance(text)) return {};
  const std::string asked = "output_router_logits of config.json: ";
  const double weight = balance_weight(recipe, text);
  if (weight == 0)
    return asked +
           "the load balancing loss of the routers is left out, its weight is 0 or the "
           "objective is not sft";
  return asked + "the load balancing loss of the routers is added to the loss, times " +
         format_number(weight, "%g") +
         "; it is a mean over the micro-batches and depends on their rows, as in transformers";
}

int64_t rows_of_step(const recipe::Recipe& recipe) {
  const recipe::Recipe::Train& train = recipe.train;
  const int64_t accumulated =
      train.grad_accum > 0 ? train.grad_accum : train.global_batch / train.batch_size;
  return train.batch_size * std::max<int64_t>(1, accumulated);
}

}  // namespace lft::train
