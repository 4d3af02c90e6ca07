// One forward and backward pass over a probe batch without side effects: gradients are returned as
// norms and never stored in the tensors.
#pragma once
#include <vector>

#include "src/train/proof/proof.h"

namespace lft::train {

struct ProbeGradients {
  double loss = 0;     // mean over the supervised tokens
  bool finite = true;  // loss and every gradient
  double loss_scale = 1;
  std::vector<bool> reached;  // by tensor
  std::vector<double> norms;  // by tensor: L2 of the unscaled gradient; 0 if not reached
};

/// Gradients of `tensors` (those that require none are not reached),
/// without dropout. If a gradient but not the loss is non-finite
/// under a loss scale, the scale is lowered and the pass repeated.
ProbeGradients probe_gradients(family::Model& model, const std::vector<at::Tensor>& tensors,
                               const Probe& probe);

/// The same probe in FP32 without a loss scale. Its activations are twice as large as the run has
/// memory for, so every block is recomputed.
Probe in_fp32(const Probe& probe);

}  // namespace lft::train
