// One pass over all gradients: the first non-finite one, each norm and the global norm. Changes nothing.
#pragma once
#include <ATen/core/Tensor.h>

#include <vector>

namespace lft {

struct GradCheck {
  int64_t first_bad = -1;     // index of the first tensor with a NaN or an infinity, -1: none
  double norm = 0;            // global L2; not meaningful when first_bad >= 0
  std::vector<double> norms;  // per tensor; 0 for an absent gradient
};

/// Sums squares in double, in a fixed order whatever the thread count. Undefined tensors count as absent.
GradCheck check_gradients(const std::vector<at::Tensor>& gradients);

/// min(1, max_norm / (norm + 1e-6)); 1 when max_norm is 0 (off).
double clip_factor(double norm, double max_norm);

}  // namespace lft
