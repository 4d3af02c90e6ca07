// Which dtype a run computes in, and why. What runs in it is the policy table of models/ops/precision.h.
#pragma once
#include <ATen/core/Tensor.h>

#include <string>

namespace lft {

struct Precision {
  at::ScalarType compute = at::kFloat;
  std::string reason;  // why this one, for the plan
  std::string notice;  // one line where it is not what was asked for; else empty
};

/// `compute` is auto, bf16, fp16 or fp32 (of a recipe). auto is bf16 where the device multiplies bf16 matrices fast, else fp32. FP16 needs
/// loss scaling, which a run does not have: it computes in fp32 and says so.
Precision choose_precision(const std::string& compute, at::Device device);

/// fp32, bf16, fp16 and back. kUsage for another name.
at::ScalarType compute_type(const std::string& name);
std::string compute_name(at::ScalarType type);

}  // namespace lft
