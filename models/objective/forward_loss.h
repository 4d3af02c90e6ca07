// The forward pass of a batch, from the model's inputs to its loss. Everything that a pass depends
// on, apart from the model and the batch, is in its context.
#pragma once
#include <ATen/core/ScalarType.h>

#include <cstdint>
#include <optional>

#include "models/family/model.h"
#include "models/layers/routing.h"
#include "models/objective/objective.h"
#include "models/ops/core/precision.h"

namespace lft::objective {

struct ForwardContext {
  at::ScalarType compute = at::kFloat;               // dtype of the products
  std::optional<ops::DropoutPosition> dropout = {};  // keys the masks; none: evaluation, no dropout
  int64_t recompute = 0;             // activation checkpointing: every Nth block, 0: none
  bool offload_activations = false;  // keeps inputs of recomputed blocks in host memory
  int64_t normaliser = 1;            // divisor of the sum of the terms
  double kl = 0;                     // Objective::uses_kl(): of the global batch
  at::Tensor* logprobs = nullptr;    // receives the supervised tokens' log-probabilities, detached
  at::Tensor* figures = nullptr;     // receives Objective::figures() of the batch
  layers::RoutingPtr routing = {};   // records the routers of experts; null: not recorded
  const Objective* objective = &supervised_nll();
};

/// Log-probabilities of the supervised tokens, float32 [k] (ModelImpl::supervised_logprobs).
at::Tensor forward_logprobs(const ForwardContext& context, family::Model& model,
                            const family::Batch& batch);
/// The objective's terms of the batch / context.normaliser: a float32 scalar, with a graph if
/// gradients are enabled.
at::Tensor forward_loss(const ForwardContext& context, family::Model& model,
                        const family::Batch& batch);

}  // namespace lft::objective
