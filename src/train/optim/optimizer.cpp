#include "src/train/optim/optimizer.h"

#include <ATen/Functions.h>

#include <algorithm>
#include <array>

#include "kernels/common/error.h"
#include "models/lora/trained_modules.h"
#include "models/ops/core/dispatch.h"

namespace lft::train {
namespace {

/// One update, of a tensor or of a piece of it. absmax undefined: moments in float32.
struct Update {
  at::Tensor param, grad, exp_avg, exp_avg_sq, exp_avg_absmax, exp_avg_sq_absmax;
  double lr = 0;
  int64_t t = 1;
  ops::ParamCopy copy = {};

  std::array<at::Tensor*, 4> state() {
    return {&exp_avg, &exp_avg_sq, &exp_avg_absmax, &exp_avg_sq_absmax};
  }
};

ops::ParamCopy shadow_of(const AdamSlot& slot) {
  const ops::ShadowPtr& shadow = slot.param.shadow;
  if (!shadow || !shadow->place().defined()) return {};
  return {.copy = shadow->place(), .scale = shadow->scale()};
}

Update make_update(const AdamSlot& slot, double lr) {
  return {.param = slot.param.tensor,
          .grad = slot.param.tensor.grad(),
          .exp_avg = slot.exp_avg,
          .exp_avg_sq = slot.exp_avg_sq,
          .exp_avg_absmax = slot.exp_avg_absmax,
          .exp_avg_sq_absmax = slot.exp_avg_sq_absmax,
          .lr = lr,
          .t = slot.steps + 1,
          .copy = shadow_of(slot)};
}

/// The same with flat tensors, which can be cut.
Update flat(Update update) {
  for (at::Tensor* tensor : {&update.param, &update.grad, &update.exp_avg, &update.exp_avg_sq})
    *tensor = tensor->detach().reshape(-1);
  if (update.copy.copy.defined()) update.copy.copy = update.copy.copy.view(-1);
  return update;
}

Update cut(const Update& whole, int64_t first, int64_t count) {
  Update part = whole;
  for (at::Tensor* tensor : {&part.param, &part.grad, &part.exp_avg, &part.exp_avg_sq})
    *tensor = tensor->narrow(0, first, count);
  if (part.copy.copy.defined()) part.copy.copy = part.copy.copy.narrow(0, first, count);
  if (!whole.exp_avg_absmax.defined()) return part;
  const int64_t begin = ops::moment_blocks(first),
                blocks =
                    ops::moment_blocks(first + count) - begin;  // `first` is a multiple of a block
  for (at::Tensor* tensor : {&part.exp_avg_absmax, &part.exp_avg_sq_absmax})
    *tensor = tensor->narrow(0, begin, blocks);
  return part;
}

void launch(const std::vector<Update>& updates, const ops::AdamWOptions& options,
            const ops::GradVerdict& verdict) {
  std::vector<ops::AdamWTensor> wide;
  std::vector<ops::AdamW8Tensor> narrow;
  for (const Update& u : updates) {
    if (u.exp_avg_absmax.defined()) {
      narrow.push_back({u.param, u.grad, u.exp_avg, u.exp_avg_sq, u.exp_avg_absmax,
                        u.exp_avg_sq_absmax, u.lr, u.t, u.copy});
    } else {
      wide.push_back({u.param, u.grad, u.exp_avg, u.exp_avg_sq, u.lr, u.t, u.copy});
    }
  }
  if (!wide.empty() || narrow.empty()) ops::adamw_(wide, options, verdict);
  if (!narrow.empty()) ops::adamw8_(narrow, options, verdict);
}

/// In the stream of the update before and behind it, so that nothing waits on the host.
void launch_piece(std::vector<Update> piece, const ops::AdamWOptions& options,
                  const ops::GradVerdict& verdict) {
  const std::vector<Update> hosts = piece;
  for (Update& update : piece) {
    for (at::Tensor* tensor : update.state()) {
      if (tensor->defined())
        *tensor = tensor->to(update.param.device(), tensor->scalar_type(), /*non_blocking=*/true,
                             /*copy=*/true);
    }
  }
  launch(piece, options, verdict);
  for (size_t i = 0; i < piece.size(); ++i) {
    Update host = hosts[i];
    for (size_t part = 0; part < host.state().size(); ++part) {
      if (host.state()[part]->defined())
        host.state()[part]->copy_(*piece[i].state()[part], /*non_blocking=*/true);
    }
  }
}

/// Neighbouring tensors together, large ones cut: at most `elements` at a time.
void launch_in_pieces(const std::vector<Update>& updates, int64_t elements,
                      const ops::AdamWOptions& options, const ops::GradVerdict& verdict) {
  std::vector<Update> piece;
  int64_t filled = 0;
  for (const Update& each : updates) {
    const Update update = flat(each);
    const int64_t size = update.param.numel();
    for (int64_t first = 0; first < size; first += elements) {
      const int64_t count = std::min(elements, size - first);
      if (filled + count > elements) {
        launch_piece(std::exchange(piece, {}), options, verdict);
        filled = 0;
      }
      piece.push_back(cut(update, first, count));
      filled += count;
    }
  }
  launch_piece(std::move(piece), options, verdict);
}

at::Tensor zeros(const at::Tensor& param, at::IntArrayRef sizes, at::ScalarType dtype,
                 const MomentStorage& storage) {
  const at::TensorOptions there = at::TensorOptions().dtype(dtype);
  if (!storage.offload) return at::zeros(sizes, there.device(param.device()));
  return at::zeros(sizes, there.pinned_memory(ops::runs_kernels(param.device())));
}

std::vector<lora::Trainable> trainables_of(const std::vector<AdamSlot>& slots) {
  std::vector<lora::Trainable> trainables;
  for (const AdamSlot& slot : slots) trainables.push_back(slot.param);
  return trainables;
}

AdamSlot make_slot(const lora::Trainable& trainable, const MomentStorage& storage) {
  const at::Tensor& param = trainable.tensor;
  const bool narrow = storage.eight_bits && param.numel() >= kLeast8Bit;
  const auto moment = [&] {
    return zeros(param, param.sizes(), narrow ? at::kByte : at::kFloat, storage);
  };
  AdamSlot slot{.param = trainable, .exp_avg = moment(), .exp_avg_sq = moment()};
  if (!narrow) return slot;
  const auto absmax = [&] {
    return zeros(param, {ops::moment_blocks(param.numel())}, at::kFloat, storage);
  };
  slot.exp_avg_absmax = absmax();
  slot.exp_avg_sq_absmax = absmax();
  return slot;
}

}  // namespace

std::vector<std::pair<std::string, at::Tensor>> moment_tensors(const AdamSlot& slot) {
  std::vector<std::pair<std::string, at::Tensor>> tensors = {
      {"exp_avg." + slot.param.name, slot.exp_avg},
      {"exp_avg_sq." + slot.param.name, slot.exp_avg_sq}};
  if (!slot.in_8_bits()) return tensors;
  tensors.emplace_back("exp_avg_absmax." + slot.param.name, slot.exp_avg_absmax);
  tensors.emplace_back("exp_avg_sq_absmax." + slot.param.name, slot.exp_avg_sq_absmax);
  return tensors;
}

Moments moments(const AdamSlot& slot) {
  const at::Device device = slot.param.tensor.device();
  if (!slot.in_8_bits()) return {slot.exp_avg.to(device), slot.exp_avg_sq.to(device)};
  return {
      ops::decode_moment(slot.exp_avg, slot.exp_avg_absmax, /*is_signed=*/true).to(device),
      ops::decode_moment(slot.exp_avg_sq, slot.exp_avg_sq_absmax, /*is_signed=*/false).to(device)};
}

void forget_moments(AdamSlot& slot) {
  for (const auto& [name, tensor] : moment_tensors(slot)) tensor.zero_();
  slot.steps = 0;
}

AdamW::AdamW(const std::vector<lora::Trainable>& trainables, std::vector<ParamGroup> groups,
             ops::AdamWOptions options, MomentStorage storage)
    : options_(options), storage_(storage), groups_(std::move(groups)) {
  slots_.reserve(trainables.size());
  for (const lora::Trainable& trainable : trainables) {
    if (trainable.tensor.scalar_type() != at::kFloat || !trainable.tensor.is_contiguous()) {
      throw Error(ErrorKind::kInternal, {.what = "a trainable is not a contiguous float32 tensor",
                                         .where = trainable.name,
                                         .found = {},
                                         .expected = {},
                                         .next = {}});
    }
    slots_.push_back(make_slot(trainable, storage_));
  }
}

void AdamW::zero_gradients() {
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

void AdamW::forget_gradients() {
  unwritten_.clear();
  for (const at::Tensor& part : gradients_.parts) unwritten_.push_back(part._version());
}

void AdamW::gradients_written(const std::string& scope) {
  for (size_t i = 0; i < gradients_.parts.size(); ++i) {
    if (slots_[i].param.scope == scope) gradients_.parts[i].unsafeGetTensorImpl()->bump_version();
  }
}

bool AdamW::has_gradient(size_t slot) const {
  const at::Tensor& gradient = slots_[slot].param.tensor.grad();
  if (!gradient.defined()) return false;
  const bool bound = slot < gradients_.parts.size() && gradient.is_same(gradients_.parts[slot]);
  return !bound || gradient._version() != unwritten_[slot];
}

std::vector<at::Tensor> AdamW::gradients() const {
  std::vector<at::Tensor> gradients;
  for (size_t i = 0; i < slots_.size(); ++i) {
    gradients.push_back(has_gradient(i) ? slots_[i].param.tensor.grad() : at::Tensor());
  }
  return gradients;
}

void AdamW::drop_gradients() {
  for (AdamSlot& slot : slots_) slot.param.tensor.mutable_grad() = at::Tensor();
  gradients_ = {};
  unwritten_.clear();
}

void AdamW::keep_shadows(at::ScalarType compute) {
  const at::ScalarType kept = shadows_.flat.defined() ? shadows_.flat.scalar_type() : at::kFloat;
  if (kept != compute) {
    std::vector<lora::Trainable> shadowed = trainables_of(slots_);
    std::erase_if(shadowed, [](const lora::Trainable& trainable) { return !trainable.shadow; });
    shadows_ = compute == at::kFloat ? FlatTensors() : make_flat(shadowed, compute);
    for (size_t i = 0; i < shadowed.size(); ++i) {
      shadowed[i].shadow->keep(shadows_.flat.defined() ? shadows_.parts[i] : at::Tensor());
    }
  }
  for (const AdamSlot& slot : slots_) {
    if (slot.param.shadow) slot.param.shadow->refresh();
  }
}

void AdamW::step(double factor, const ops::GradVerdict& verdict) {
  stepped_.clear();
  std::vector<Update> updates;
  for (const ParamGroup& group : groups_) {
    for (const size_t member : group.members) {
      if (!has_gradient(member)) continue;
      if (const ops::ShadowPtr& shadow = slots_[member].param.shadow)
        shadow->refresh();  // the update may turn out to be none
      updates.push_back(make_update(slots_[member], group.lr * factor));
      stepped_.push_back(member);
    }
  }
  if (storage_.offload) {
    launch_in_pieces(updates, storage_.piece, options_, verdict);
  } else {
    launch(updates, options_, verdict);
  }
  for (const size_t member : stepped_) {
    const ops::ShadowPtr& shadow = slots_[member].param.shadow;
    if (shadow && shadow->place().defined()) shadow->written();
  }
}

void AdamW::commit(bool taken) {
  for (const size_t member : stepped_) slots_[member].steps += taken ? 1 : 0;
  stepped_.clear();
}

std::vector<ParamGroup> param_groups(const std::vector<lora::Trainable>& trainables, double lr,
                                     double projector_lr, double b_ratio) {
  const double of_projector = projector_lr < 0 ? lr : projector_lr;
  std::vector<ParamGroup> groups = {{"base", lr, {}},
                                    {"projector", of_projector, {}},
                                    {"base B", lr * b_ratio, {}},
                                    {"projector B", of_projector * b_ratio, {}}};
  for (size_t i = 0; i < trainables.size(); ++i) {
    const bool projector = of_projector != lr && trainables[i].scope == "projector",
               b = b_ratio != 1 && trainables[i].name.ends_with(lora::kLoraB);
    groups[(projector ? 1 : 0) + (b ? 2 : 0)].members.push_back(i);
  }
  for (size_t i = groups.size(); i-- > 1;) {
    if (groups[i].members.empty()) groups.erase(groups.begin() + static_cast<ptrdiff_t>(i));
  }
  return groups;
}

}  // namespace lft::train
