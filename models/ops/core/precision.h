// The compute dtype of the running forward pass, and the table of the precision of each op. It
// follows the lists of CUDA autocast on all devices.
#pragma once
#include <ATen/core/Tensor.h>

#include <array>

namespace lft::ops {

/// float32, bfloat16 or float16. Thread-local, float32 outside any guard. An autograd function
/// stores it for its backward pass.
at::ScalarType compute_dtype();

class ComputeDtypeGuard {
 public:
  explicit ComputeDtypeGuard(at::ScalarType dtype);
  ~ComputeDtypeGuard();
  ComputeDtypeGuard(const ComputeDtypeGuard&) = delete;

 private:
  at::ScalarType previous_;
};

/// The precision of an op. With float32 as the compute dtype all ops are float32.
enum class RunsIn : uint8_t {
  kCompute,  // operands and result have the compute dtype (FP16: infinite beyond 65,504); products
             // accumulate in float32
  kFloat32,  // float32 maths for all inputs
  kWidest,   // the widest dtype of the unconverted operands; internally float32
};
enum class Op : uint8_t {
  kLinear,
  kAttention,
  kRmsNorm,
  kLayerNorm,
  kLogSoftmax,
  kSum,
  kEmbedding,
  kActivation,
  kRope,
  kDropout,
  kAdd,
  kCat
};
struct OpPolicy {
  Op op;
  RunsIn runs_in;
  const char* name;
  const char*
      torch;  // the op in autocast's lists that decides; ops of kWidest are in neither cast list
};
/// The policy, in the order of Op. Backward passes run in the dtypes of the forward pass; the
/// gradient of a float32 weight is rounded to the compute dtype before it becomes float32, as the
/// cast of a weight under autocast does.
inline constexpr std::array kPrecisionPolicy = {
    OpPolicy{Op::kLinear, RunsIn::kCompute, "linear",
             "linear"},  // projections, both products of an adapter, patches, LM head
    OpPolicy{Op::kAttention, RunsIn::kCompute, "attention",
             "scaled_dot_product_attention"},  // its softmax is float32
    OpPolicy{Op::kRmsNorm, RunsIn::kFloat32, "rms_norm", "rsqrt"},
    OpPolicy{Op::kLayerNorm, RunsIn::kFloat32, "layer_norm", "layer_norm"},
    OpPolicy{Op::kLogSoftmax, RunsIn::kFloat32, "log_softmax", "log_softmax"},
    OpPolicy{Op::kSum, RunsIn::kFloat32, "loss", "sum"},
    OpPolicy{Op::kEmbedding, RunsIn::kWidest, "embedding", "embedding"},
    OpPolicy{Op::kActivation, RunsIn::kWidest, "activation",
             "gelu"},                                     // and quick_gelu, silu * up, relu
    OpPolicy{Op::kRope, RunsIn::kWidest, "rope", "mul"},  // angles are float32
    OpPolicy{Op::kDropout, RunsIn::kWidest, "dropout", "dropout"},
    OpPolicy{Op::kAdd, RunsIn::kWidest, "add",
             "add"},  // residual streams: float32 over a float32 base, else the base's dtype
    OpPolicy{Op::kCat, RunsIn::kWidest, "cat", "cat"},
};

/// The dtype of an op's result for operands whose widest dtype is `input`. The result of a norm has
/// the compute dtype if that is BF16, since the following linear layers round to it. Under FP16 it
/// keeps the width of `input`, as under autocast, so that gradients are added in that width and
/// overflow no sooner than in torch.
at::ScalarType op_dtype(Op op, at::ScalarType input);

class DropoutStreams;  // models/ops/elementwise/dropout.h

/// The position of a forward pass. With it and the module path a dropout mask is a pure function.
/// Thread-local; no dropout outside a guard.
struct DropoutPosition {
  uint64_t seed = 0;
  uint64_t step = 0;                  // optimizer step, from 1
  uint64_t micro_batch = 0;           // within the accumulation group, from 0
  DropoutStreams* streams = nullptr;  // for a pass in a CUDA graph; may be null
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

}  // namespace lft::ops
