// The check between backward pass and optimizer: unscales the gradients, finds non-finite values,
// computes norms, and decides on the device whether to step and how much to clip. The torch binding
// of kernels/grad_stats.
#pragma once
#include <ATen/core/Tensor.h>

#include <vector>

#include "kernels/grad_stats/grad_stats.h"

namespace lft::ops {

/// The result of a check, on the device of the gradients; the host reads it with read_stats().
struct GradVerdict {
  at::Tensor control;  // one GradControl as bytes
  at::Tensor squares;  // double [tensors]: sum of squares of each unscaled gradient, 0 if absent
};

/// The same on the host.
struct GradStats {
  bool found_inf = false;  // a gradient or the loss is not finite: the update is a no-op
  bool loss_finite = true;
  double loss = 0;         // the checked loss, 0 without one
  int64_t first_bad = -1;  // index of the first gradient with a NaN or an infinity, -1: none
  double norm =
      0;  // global L2 of the unscaled gradients, before clipping; not finite when first_bad >= 0
  double clip =
      1;  // min(1, max_norm / (norm + 1e-6)), 1 when max_norm is 0 or the update is a no-op
  std::vector<double> norms;  // norm per gradient, 0 if absent
};

/// Each gradient becomes g * inv_scale in place (in float32, rounded to its dtype; no write if
/// inv_scale is 1). Undefined tensors are absent. FP32, BF16, FP16 mixed, all on one device.
/// inv_scale > 0; max_norm >= 0, 0: no clipping; loss: one element, or undefined (not checked).
/// Asynchronous. On a CPU the result has the same bits for any number of threads.
GradVerdict check_gradients(const std::vector<at::Tensor>& gradients, double inv_scale,
                            double max_norm, const at::Tensor& loss);

/// The only synchronisation with the host.
GradStats read_stats(const GradVerdict& verdict);

/// Parts of the result as scalar tensors on the device: found_inf (0 or 1), and the clip
/// coefficient.
at::Tensor found_inf(const GradVerdict& verdict);
at::Tensor clip_of(const GradVerdict& verdict);

}  // namespace lft::ops
