// The linear layers of the experts of a mixture as one layer: a weight [experts * out, in], and one
// adapter whose A [experts * rank, in] and B [experts * out, rank] contain those of all experts, as
// PEFT's `target_parameters` has them.
#pragma once
#include "models/layers/linear.h"
#include "models/ops/experts/expert_rows.h"

namespace lft::layers {

class ExpertLinearImpl : public LinearImpl {
 public:
  ExpertLinearImpl(int64_t experts, int64_t in, int64_t out, at::TensorOptions options);
  /// expert_linear() and expert_linear_gated() of models/ops/experts.
  at::Tensor forward(const at::Tensor& x_ti, const ops::ExpertRowsPtr& rows);
  at::Tensor forward(const at::Tensor& gate_up, const at::Tensor& share_tk,
                     const ops::ExpertRowsPtr& rows, ops::Gate kind);

 private:
  ops::LowRank update() const;
};
TORCH_MODULE(ExpertLinear);

}  // namespace lft::layers
