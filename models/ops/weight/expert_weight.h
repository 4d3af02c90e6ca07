// The weights of the experts of a layer, one below the other: [experts * o, i].
#pragma once
#include "models/ops/weight/weight.h"

namespace lft::ops {

/// Coded separately, so that a product dequantizes or gathers only its expert.
struct ExpertStorage : CodedWeight {
  /// All with one shape and storage.
  explicit ExpertStorage(std::vector<c10::intrusive_ptr<CodedWeight>> experts);
  BaseStorage kind() const override { return experts.front()->kind(); }
  std::vector<std::pair<std::string, at::Tensor>> parts() const override;
  c10::intrusive_ptr<CodedWeight> with(const std::vector<at::Tensor>& parts) const override;
  at::Device device() const override { return experts.front()->device(); }
  at::Tensor dense(at::ScalarType dtype) const override;

  const std::vector<c10::intrusive_ptr<CodedWeight>> experts;
};

/// The rows of one expert in a matrix with those of all.
at::Tensor expert_rows(const at::Tensor& all, int64_t expert, int64_t experts);
/// The weight [o, i] of an expert.
Weight expert_weight(const Weight& weight, int64_t expert, int64_t experts);

/// quantize() of each expert.
c10::intrusive_ptr<CodedWeight> quantize_experts(const at::Tensor& weight, int64_t experts,
                                                 BaseStorage storage, at::Device device);

}  // namespace lft::ops
