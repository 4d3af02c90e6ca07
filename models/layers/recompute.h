// Activation checkpointing (Chen et al. 2016, "Training deep nets with sublinear memory cost"): a
// block keeps its input alone, and the backward pass runs it again. Same bits as without.
#pragma once
#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <functional>

namespace lft::layers {

/// While it lives, on this thread: every `every`-th block of a stack (the first one included) is
/// recomputed; 0: none. `offload`: their inputs wait in host memory (pinned where they come from a
/// GPU) and are copied back for the backward pass.
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

/// body(x), where `block` owns every parameter that body uses and x is the only tensor with a
/// graph. Compute dtype, dropout position, module path and DirectGradientsGuard of this call hold
/// again when the backward pass runs it.
at::Tensor recompute(const torch::nn::Module& block, const at::Tensor& x,
                     std::function<at::Tensor(const at::Tensor&)> body);

}  // namespace lft::layers
