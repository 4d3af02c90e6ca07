// Which dtype a run computes in, and why. What runs in it is the policy table of
// models/ops/core/precision.h.
#pragma once
#include <ATen/core/Tensor.h>

#include <string>

#include "src/recipe/choices.h"
#include "src/train/machine/device.h"

namespace lft::train {

struct Precision {
  at::ScalarType compute = at::kFloat;
  std::string reason;  // why this one, for the plan
  std::string notice;  // one line where it is not what was asked for, or slow; else empty
};

/// How the device supports a dtype. `why` names what is missing; empty when it is fast.
struct DtypeSupport {
  bool has = true, fast = true;
  std::string why;
};
DtypeSupport dtype_support(at::ScalarType type, const DeviceFacts& facts);

/// auto: bf16 where the device multiplies bf16 matrices fast;
/// else fp16 where it does those; else fp32 (a CPU never multiplies fp16 ones faster than fp32:
/// models/ops/core/gemm.h). An unsupported dtype is replaced by fp32; a slow
/// one is used. `field` is the option's name, for the notice.
Precision choose_precision(recipe::Choice<recipe::ComputeDtype> asked, const DeviceFacts& facts,
                           const std::string& field = "precision.compute");

/// Why packed passes (train.max_tokens_per_step) cannot run on the device; empty: they can. In 16
/// bits on a GPU they use LibTorch's flash attention.
std::string packing_fault(at::ScalarType compute, int64_t head_dim, const DeviceFacts& facts);

/// Converts between fp32, bf16, fp16 and the scalar type. kUsage for another name.
at::ScalarType compute_type(const std::string& name);
std::string compute_name(at::ScalarType type);

}  // namespace lft::train
