#include "models/objective/forward_loss.h"

#include <ATen/ATen.h>

#include "models/layers/recompute.h"

namespace lft::objective {

at::Tensor forward_logprobs(const ForwardContext& context, family::Model& model,
                            const family::Batch& batch) {
  const ops::ComputeDtypeGuard dtype(context.compute);
  std::optional<ops::DropoutGuard> dropout;
  if (context.dropout) dropout.emplace(*context.dropout);
  const layers::RecomputeGuard recompute(context.recompute, context.offload_activations);
  const layers::RoutingGuard routing(context.routing);
  return model->supervised_logprobs(batch);
}

at::Tensor forward_loss(const ForwardContext& context, family::Model& model,
                        const family::Batch& batch) {
  const Objective& objective = *context.objective;
  const at::Tensor logprobs = forward_logprobs(context, model, batch);
  if (context.logprobs != nullptr) *context.logprobs = logprobs.detach();
  if (context.figures != nullptr)
    *context.figures = objective.figures(logprobs.detach(), batch, context.kl);
  const at::Tensor sum = objective.terms(logprobs, batch, context.kl);
  return context.normaliser == 1 ? sum : sum / static_cast<double>(context.normaliser);
}

}  // namespace lft::objective
