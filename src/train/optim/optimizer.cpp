#include "src/train/optim/optimizer.h"

#include <ATen/Functions.h>

#include <algorithm>
#include <utility>

#include "kernels/common/error.h"
#include "models/lora/trained_modules.h"
#include "models/ops/core/dispatch.h"

namespace lft::train {
namespace {

ops::ParamCopy copy_of(const Slot& slot) {
  const ops::ShadowPtr& shadow = slot.param.shadow;
  if (!shadow || !shadow->place().defined()) return {};
  return {.copy = shadow->place(), .scale = shadow->scale()};
}

Update make_update(const Slot& slot, double lr, bool decays) {
  Update update{.slot = &slot,
                .param = slot.param.tensor,
                .grad = slot.param.tensor.grad(),
                .moments = {},
                .lr = lr,
                .decays = decays,
                .t = slot.steps + 1,
                .copy = copy_of(slot)};
  for (const NamedMoment& moment : slot.moments) update.moments.push_back(moment.tensor);
  return update;
}

/// The update with flat tensors, which can be split.
Update flat(Update update) {
  for (at::Tensor* tensor : {&update.param, &update.grad}) *tensor = tensor->detach().reshape(-1);
  for (at::Tensor& moment : update.moments) moment = moment.reshape(-1);
  if (update.copy.copy.defined()) update.copy.copy = update.copy.copy.view(-1);
  return update;
}

/// `first` is a multiple of every moment's span.
Update cut(const Update& whole, int64_t first, int64_t count) {
  Update part = whole;
  for (at::Tensor* tensor : {&part.param, &part.grad}) *tensor = tensor->narrow(0, first, count);
  if (part.copy.copy.defined()) part.copy.copy = part.copy.copy.narrow(0, first, count);
  for (size_t i = 0; i < part.moments.size(); ++i) {
    const int64_t span = whole.slot->moments[i].span;
    part.moments[i] = part.moments[i].narrow(0, first / span, (count + span - 1) / span);
  }
  return part;
}

/// Runs in the stream of the updates before and after it, so that the host does not wait.
void apply_piece(const UpdateRule& rule, std::vector<Update> piece,
                 const ops::GradVerdict& verdict) {
  const std::vector<Update> hosts = piece;
  for (Update& update : piece) {
    for (at::Tensor& moment : update.moments) {
      moment = moment.to(update.param.device(), moment.scalar_type(), /*non_blocking=*/true,
                         /*copy=*/true);
    }
  }
  rule.apply(piece, verdict);
  for (size_t i = 0; i < piece.size(); ++i) {
    for (size_t k = 0; k < piece[i].moments.size(); ++k)
      hosts[i].moments[k].copy_(piece[i].moments[k], /*non_blocking=*/true);
  }
}

/// Groups neighbouring tensors and splits large ones: at most `elements` at a time.
void apply_in_pieces(const UpdateRule& rule, const std::vector<Update>& updates, int64_t elements,
                     const ops::GradVerdict& verdict) {
  std::vector<Update> piece;
  int64_t filled = 0;
  for (const Update& each : updates) {
    const Update update = flat(each);
    const int64_t size = update.param.numel();
    for (int64_t first = 0; first < size; first += elements) {
      const int64_t count = std::min(elements, size - first);
      if (filled + count > elements) {
        apply_piece(rule, std::exchange(piece, {}), verdict);
        filled = 0;
      }
      piece.push_back(cut(update, first, count));
      filled += count;
    }
  }
  apply_piece(rule, std::move(piece), verdict);
}

std::vector<lora::Trainable> trainables_of(const std::vector<Slot>& slots) {
  std::vector<lora::Trainable> trainables;
  for (const Slot& slot : slots) trainables.push_back(slot.param);
  return trainables;
}

Slot make_slot(const UpdateRule& rule, const lora::Trainable& trainable,
               const MomentStorage& storage) {
  const at::Tensor& param = trainable.tensor;
  Slot slot{.param = trainable};
  for (const MomentSpec& spec : rule.moments(param.sizes(), trainable.embedding)) {
    const at::TensorOptions options = at::TensorOptions().dtype(spec.dtype);
    const at::Tensor zeros =
        at::zeros(moment_sizes(spec, param.sizes()),
                  storage.offload ? options.pinned_memory(ops::runs_kernels(param.device()))
                                  : options.device(param.device()));
    slot.moments.push_back({spec.name, zeros, spec.span});
  }
  return slot;
}

}  // namespace

Optimizer::Optimizer(const std::vector<lora::Trainable>& trainables, std::vector<ParamGroup> groups,
                     RulePtr rule, MomentStorage storage)
    : rule_(std::move(rule)), storage_(storage), groups_(std::move(groups)) {
  slots_.reserve(trainables.size());
  for (const lora::Trainable& trainable : trainables) {
    if (trainable.tensor.scalar_type() != at::kFloat || !trainable.tensor.is_contiguous()) {
      refuse(ErrorKind::kInternal, "a trainable is not a contiguous float32 tensor",
             trainable.name);
    }
    slots_.push_back(make_slot(*rule_, trainable, storage_));
  }
}

void Optimizer::zero_gradients() {
  if (gradients_.flat.defined()) {
    gradients_.flat.zero_();
  } else {
    gradients_ = make_flat(trainables_of(slots_), at::kFloat);
  }
  for (size_t i = 0; i < slots_.size(); ++i) {
    at::Tensor& gradient = slots_[i].param.tensor.mutable_grad();
    if (!gradient.is_same(gradients_.parts[i])) gradient = gradients_.parts[i];
  }
  forget_gradients();
}

void Optimizer::forget_gradients() {
  unwritten_.clear();
  for (const at::Tensor& part : gradients_.parts) unwritten_.push_back(part._version());
}

void Optimizer::gradients_written(const std::string& scope) {
  for (size_t i = 0; i < gradients_.parts.size(); ++i) {
    if (slots_[i].param.scope == scope) gradients_.parts[i].unsafeGetTensorImpl()->bump_version();
  }
}

bool Optimizer::has_gradient(size_t slot) const {
  const at::Tensor& gradient = slots_[slot].param.tensor.grad();
  if (!gradient.defined()) return false;
  const bool bound = slot < gradients_.parts.size() && gradient.is_same(gradients_.parts[slot]);
  return !bound || gradient._version() != unwritten_[slot];
}

std::vector<at::Tensor> Optimizer::gradients() const {
  std::vector<at::Tensor> gradients;
  for (size_t i = 0; i < slots_.size(); ++i) {
    gradients.push_back(has_gradient(i) ? slots_[i].param.tensor.grad() : at::Tensor());
  }
  return gradients;
}

void Optimizer::drop_gradients() {
  for (Slot& slot : slots_) slot.param.tensor.mutable_grad() = at::Tensor();
  gradients_ = {};
  unwritten_.clear();
}

void Optimizer::refresh_copies(at::ScalarType compute) {
  const at::ScalarType kept = copies_.flat.defined() ? copies_.flat.scalar_type() : at::kFloat;
  if (kept != compute) {
    std::vector<lora::Trainable> shadowed = trainables_of(slots_);
    std::erase_if(shadowed, [](const lora::Trainable& trainable) { return !trainable.shadow; });
    copies_ = compute == at::kFloat ? FlatTensors() : make_flat(shadowed, compute);
    for (size_t i = 0; i < shadowed.size(); ++i) {
      shadowed[i].shadow->keep(copies_.flat.defined() ? copies_.parts[i] : at::Tensor());
    }
  }
  for (const Slot& slot : slots_) {
    if (slot.param.shadow) slot.param.shadow->refresh();
  }
}

void Optimizer::step(double factor, const ops::GradVerdict& verdict) {
  stepped_.clear();
  std::vector<Update> updates;
  for (const ParamGroup& group : groups_) {
    for (const size_t member : group.members) {
      if (!has_gradient(member)) continue;
      if (const ops::ShadowPtr& shadow = slots_[member].param.shadow)
        shadow->refresh();  // the update may turn out to be a no-op
      updates.push_back(make_update(slots_[member], group.lr * factor, group.decays));
      stepped_.push_back(member);
    }
  }
  if (storage_.offload) {
    apply_in_pieces(*rule_, updates, storage_.piece, verdict);
  } else {
    rule_->apply(updates, verdict);
  }
  for (const size_t member : stepped_) {
    const ops::ShadowPtr& shadow = slots_[member].param.shadow;
    if (!shadow || !shadow->place().defined()) continue;
    if (rule_->writes_copies()) {
      shadow->written();
    } else {
      shadow->refresh();
    }
  }
}

void Optimizer::commit(bool taken) {
  for (const size_t member : stepped_) slots_[member].steps += taken ? 1 : 0;
  stepped_.clear();
}

std::vector<ParamGroup> param_groups(const std::vector<lora::Trainable>& trainables, double lr,
                                     double projector_lr, double b_ratio, double vision_lr) {
  std::vector<ParamGroup> groups = {{"base", lr, {}},
                                    {"projector", projector_lr < 0 ? lr : projector_lr, {}},
                                    {"vision", vision_lr < 0 ? lr : vision_lr, {}}};
  const size_t scopes = groups.size();
  for (const char* part : {" B", " B bias"}) {
    for (size_t i = 0; i < scopes; ++i)
      groups.push_back({groups[i].name + part, groups[i].lr * b_ratio, {}});
  }
  for (size_t i = 2 * scopes; i < 3 * scopes; ++i) groups[i].decays = false;
  for (size_t i = 0; i < trainables.size(); ++i) {
    size_t group = 0;
    for (size_t scope = 1; scope < scopes; ++scope) {
      if (groups[scope].lr != lr && groups[scope].name == trainables[i].scope) group = scope;
    }
    if (b_ratio != 1) {
      if (trainables[i].name.ends_with(lora::kLoraB)) group += scopes;
      if (trainables[i].name.ends_with(lora::kLoraBBias)) group += 2 * scopes;
    }
    groups[group].members.push_back(i);
  }
  for (size_t i = groups.size(); i-- > 1;) {
    if (groups[i].members.empty()) groups.erase(groups.begin() + static_cast<ptrdiff_t>(i));
  }
  return groups;
}

}  // namespace lft::train
