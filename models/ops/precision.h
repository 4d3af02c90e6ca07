// The compute dtype of the running forward pass and the policy table: which op runs in what. Follows CUDA autocast's lists on both devices.
#pragma once
#include <ATen/core/Tensor.h>

namespace lft {

/// float32, bfloat16 or float16. Thread-local, float32 outside any guard. An autograd function stores it for its backward pass.
at::ScalarType compute_dtype();

class ComputeDtypeGuard {
 public:
  explicit ComputeDtypeGuard(at::ScalarType dtype);
  ~ComputeDtypeGuard();
  ComputeDtypeGuard(const ComputeDtypeGuard&) = delete;

 private:
  at::ScalarType previous_;
};

/// Where a forward pass stands; with it and the module path a dropout mask is a pure function. Thread-local; no dropout outside a guard.
struct DropoutPosition {
  uint64_t seed = 0;
  uint64_t step = 0;         // optimizer step, from 1
  uint64_t micro_batch = 0;  // within the accumulation group, from 0
};
const DropoutPosition* dropout_position();  // nullptr: evaluation, dropout is the identity
class DropoutGuard {
 public:
  explicit DropoutGuard(DropoutPosition position);
  ~DropoutGuard();
  DropoutGuard(const DropoutGuard&) = delete;

 private:
  DropoutPosition position_;
  const DropoutPosition* previous_;
};

}  // namespace lft
