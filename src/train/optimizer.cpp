#include "src/train/optimizer.h"

#include <ATen/Functions.h>
#include <torch/csrc/autograd/variable.h>

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
                      at::zeros(tensor.sizes(), tensor.options().requires_grad(false)),
                      at::zeros({}, tensor.options().requires_grad(false))});
  }
}

void AdamW::step(double factor) {
  at::NoGradGuard no_grad;
  for (const ParamGroup& group : groups_) {
    std::vector<at::Tensor> params, grads, averages, squares, steps;
    for (const size_t member : group.members) {
      AdamSlot& slot = slots_[member];
      const at::Tensor& gradient = slot.param.tensor.grad();
      if (!gradient.defined()) continue;
      params.push_back(slot.param.tensor);
      grads.push_back(gradient.contiguous());
      averages.push_back(slot.exp_avg);
      squares.push_back(slot.exp_avg_sq);
      steps.push_back(slot.steps);
    }
    if (params.empty()) continue;
    at::_foreach_add_(steps, 1);
    at::_fused_adamw_(params, grads, averages, squares, /*max_exp_avg_sqs=*/{}, steps, group.lr * factor, options_.betas[0],
                      options_.betas[1], options_.weight_decay, options_.eps, /*amsgrad=*/false, /*maximize=*/false);
  }
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
