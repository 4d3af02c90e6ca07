#include "src/train/run/step_options.h"

#include <algorithm>

#include "src/train/inputs/run_objective.h"

namespace lft::train {

StepOptions run_step_options(const Run& run) {
  return {.objective = run.objective.get(),
          .initial = run.model.initial,
          .sources = std::max<int64_t>(1, std::ssize(run.sources)),
          .balance = balance_weight(run.recipe, run.config.text),
          .clip_grad_norm = run.recipe.optim.clip_grad_norm,
          .seed = static_cast<uint64_t>(run.recipe.train.seed),
          .offload_activations = offloads_activations(run.recipe, run.device)};
}

std::unique_ptr<GraphPasses> make_graph_passes(Run& run) {
  const int64_t fill_up = batch_layout(run).fill_up;
  if (fill_up == 0 || run.state.recovered) return nullptr;
  const recipe::Recipe::Train& train = run.recipe.train;
  const PassLimits limits{.tokens = fill_up,
                          .longest = run.data.encode.max_tokens,
                          .sequences = train.batch_size * train.grad_accum};
  return std::make_unique<GraphPasses>(run.model.model, run.optimizer, limits, run.device,
                                       train.deterministic);
}

}  // namespace lft::train
