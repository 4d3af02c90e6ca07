#include "models/layers/linear_group.h"

#include <ATen/core/grad_mode.h>

#include <utility>

#include "models/ops/core/precision.h"

namespace lft::layers {

LinearGroup::LinearGroup(std::vector<Linear> layers, const ops::Normed& x)
    : layers_(std::move(layers)) {
  if (x.y.scalar_type() != ops::op_dtype(ops::Op::kLinear, x.y.scalar_type()))
    return;  // gradients are summed in x's dtype
  std::vector<ops::LowRank> updates;
  bool shares = at::GradMode::is_enabled();
  for (const Linear& layer : layers_) {
    updates.push_back(layer->adapter() != nullptr ? layer->adapter()->shared_update()
                                                  : ops::LowRank{});
    shares |= updates.back().a_ri.defined();
  }
  if (shares) shared_ = std::make_shared<ops::SharedInput>(x, std::move(updates));
}

at::Tensor LinearGroup::Member::forward(const at::Tensor& x) {
  Linear layer = group_.layers_[number_];
  const std::shared_ptr<LinearAdapter>& adapter = layer->adapter();
  const std::optional<ops::LowRank> update =
      adapter != nullptr ? adapter->low_rank() : ops::LowRank{};
  if (!group_.shared_ || !update) return layer->forward(x);
  return group_.shared_->linear(static_cast<int64_t>(number_), layer->stored(), layer->bias,
                                *update);
}

}  // namespace lft::layers
