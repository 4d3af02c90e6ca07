// Bytes of a Gated DeltaNet layer (models/llama/gated_delta_net.h).
#pragma once
#include <cstdint>

#include "models/llama/config.h"

namespace lft::train {

/// Kept for the backward pass, from the outputs of the first linear layers to the input of the
/// last one. `kept`: of the `tokens`, those after the recurrence. `compute`: bytes per element.
double delta_keeps(const llama::DeltaConfig& delta, double tokens, double kept, double compute);
/// Elements per token of the temporaries of a pass.
double delta_width(const llama::DeltaConfig& delta);
/// The workspace of the backward kernel: gated_delta_workspace() in kernels/gated_delta.
double delta_workspace(const llama::DeltaConfig& delta, double tokens);
/// The states and convolution inputs that decoding keeps for `rows` answers in `layers` layers.
double delta_states(const llama::DeltaConfig& delta, int64_t rows, int64_t layers, double compute);

}  // namespace lft::train
