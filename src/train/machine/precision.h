// Chooses the compute dtype of a run and gives the reason. The policy table in
// models/ops/core/precision.h lists the ops that use it.
#pragma once
#include <ATen/core/Tensor.h>

#include <string>

#include "src/recipe/choices.h"
#include "src/train/machine/device.h"

namespace lft::train {

struct Precision {
  at::ScalarType compute = at::kFloat;
  std::string reason;  // reason of the choice, for the plan
  std::string notice;  // one line if it differs from the request or is slow; else empty
};

/// How the device supports a dtype. `why` names the missing feature; empty if it is fast.
struct DtypeSupport {
  bool has = true, fast = true;
  std::string why;
};
DtypeSupport dtype_support(at::ScalarType type, const DeviceFacts& facts);

/// auto: bf16 if the device has fast bf16 matrix products, else fp16 if it has fast fp16 ones,
/// else fp32 (on a CPU fp16 products are never faster than fp32: models/ops/core/gemm.h).
/// An unsupported dtype is replaced by fp32; a slow one is used. `field` is the option's name for
/// the notice.
Precision choose_precision(recipe::Choice<recipe::ComputeDtype> asked, const DeviceFacts& facts,
                           const std::string& field = "precision.compute");

/// Why packed passes (train.max_tokens_per_step) cannot run on the device; empty: they can. In
/// 16-bit dtypes on a GPU they use LibTorch's flash attention.
std::string packing_fault(at::ScalarType compute, int64_t head_dim, const DeviceFacts& facts);

/// Converts between fp32, bf16, fp16 and the scalar type. kUsage for another name.
at::ScalarType compute_type(const std::string& name);
std::string compute_name(at::ScalarType type);

}  // namespace lft::train
