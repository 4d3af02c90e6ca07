#include "models/layers/expert_linear.h"

#include "kernels/common/error.h"
#include "models/ops/experts/expert_linear.h"

namespace lft::layers {

ExpertLinearImpl::ExpertLinearImpl(int64_t experts, int64_t in, int64_t out,
                                   at::TensorOptions options)
    : LinearImpl(in, experts * out, /*has_bias=*/false, options, experts) {}

ops::LowRank ExpertLinearImpl::update() const {
  if (adapter() == nullptr) return {};
  const std::optional<ops::LowRank> update = adapter()->low_rank();
  if (!update || update->mask.threshold != 0)
    throw Error(ErrorKind::kInternal, "an adapter of experts is low-rank, without dropout");
  return *update;
}

at::Tensor ExpertLinearImpl::forward(const at::Tensor& x_ti, const ops::ExpertRowsPtr& rows) {
  return ops::expert_linear(x_ti, rows, {stored(), update()});
}

at::Tensor ExpertLinearImpl::forward(const at::Tensor& gate_up, const at::Tensor& share_tk,
                                     const ops::ExpertRowsPtr& rows, ops::Gate kind) {
  return ops::expert_linear_gated(gate_up, share_tk, rows, {stored(), update()}, kind);
}

}  // namespace lft::layers
