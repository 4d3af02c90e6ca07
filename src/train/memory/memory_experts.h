// Bytes of an MLP of experts (models/llama/sparse_mlp.h).
#pragma once
#include "models/llama/config.h"

namespace lft::train {

/// Kept for the backward pass of `tokens`, without adapters: the router's probabilities and
/// indices, gate and up of the experts and of the shared expert. `compute`: bytes per element.
double experts_keep(const llama::ExpertConfig& experts, double tokens, double hidden,
                    double compute);
/// The temporaries of the forward or of the backward pass of all experts.
double experts_width(const llama::ExpertConfig& experts, double tokens, double hidden,
                     double compute);

}  // namespace lft::train
