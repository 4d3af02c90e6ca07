#include "src/train/optimizer.h"

#include <ATen/Functions.h>

#include <utility>

#include "kernels/common/error.h"

namespace lft {

AdamW::AdamW(const std::vector<Trainable>& trainables, std::vector<ParamGroup> groups, AdamWOptions options)
    : options_(options), groups_(std::move(groups)) {
  slots_.reserve(trainables.size());
  for (const Trainable& trainable : trainables) {
    const at::Tensor& tensor = trainable.tensor;
    if (tensor.scalar_type() != at::kFloat || !tensor.is_contiguous()) {
      throw Error(
          ErrorKind::kInternal,
          {.what = "a trainable is not a contiguous float32 tensor", .where = trainable.name, .found = {}, .expected = {}, .next = {}});
    }
    slots_.push_back({trainable, at::zeros(tensor.sizes(), tensor.options().requires_grad(false)),
                      at::zeros(tensor.sizes(), tensor.options().requires_grad(false))});
  }
}

std::vector<at::Tensor> AdamW::gradients() const {
  std::vector<at::Tensor> gradients;
  for (const AdamSlot& slot : slots_) gradients.push_back(slot.param.tensor.grad());
  return gradients;
}

void AdamW::step(double factor, const GradVerdict& verdict) {
  stepped_.clear();
  std::vector<AdamWTensor> tensors;
  for (const ParamGroup& group : groups_) {
    for (const size_t member : group.members) {
      const AdamSlot& slot = slots_[member];
      const at::Tensor& gradient = slot.param.tensor.grad();
      if (!gradient.defined()) continue;
      tensors.push_back({slot.param.tensor, gradient, slot.exp_avg, slot.exp_avg_sq, group.lr * factor, slot.steps + 1});
      stepped_.push_back(member);
    }
  }
  adamw_(tensors, options_, verdict);
}

void AdamW::commit(bool taken) {
  for (const size_t member : stepped_) slots_[member].steps += taken ? 1 : 0;
  stepped_.clear();
}

void AdamW::drop_gradients() {
  for (AdamSlot& slot : slots_) slot.param.tensor.mutable_grad() = at::Tensor();
}

std::vector<ParamGroup> param_groups(const std::vector<Trainable>& trainables, double lr, double projector_lr) {
  std::vector<ParamGroup> groups = {{"base", lr, {}}, {"projector", projector_lr < 0 ? lr : projector_lr, {}}};
  const bool apart = groups[1].lr != groups[0].lr;
  for (size_t i = 0; i < trainables.size(); ++i) {
    groups[apart && trainables[i].scope == "projector" ? 1 : 0].members.push_back(i);
  }
  if (groups[1].members.empty()) groups.pop_back();
  return groups;
}

}  // namespace lft
