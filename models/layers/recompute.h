// Activation checkpointing (Chen et al. 2016, "Training deep nets with sublinear memory cost"): a
// block saves only its input, and the backward pass runs it again. The results are bitwise the
// same.
#pragma once
#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <functional>

namespace lft::layers {

/// During its lifetime, on this thread, every `every`-th block of a stack is recomputed, starting
/// with the first; 0: none. `offload`: the inputs are kept in host memory (pinned if they are on a
/// GPU) and copied back for the backward pass.
class RecomputeGuard {
 public:
  explicit RecomputeGuard(int64_t every, bool offload = false);
  ~RecomputeGuard();
  RecomputeGuard(const RecomputeGuard&) = delete;

 private:
  int64_t previous_;
  bool previous_offload_;
};
bool recomputes(int64_t block);

/// Runs body(x). `block` owns every parameter that body uses, and x is the only tensor with a
/// graph. The backward pass runs body with the compute dtype, dropout position, module path and
/// DirectGradientsGuard of this call.
at::Tensor recompute(const torch::nn::Module& block, const at::Tensor& x,
                     std::function<at::Tensor(const at::Tensor&)> body);

}  // namespace lft::layers
