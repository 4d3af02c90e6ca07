#include "src/train/optim/loss_scaler.h"

#include <ATen/Functions.h>

#include <algorithm>
#include <cmath>

#include "kernels/common/error.h"
#include "src/base/errors.h"

namespace lft::train {
namespace {

/// Describes the error in a state; empty: none.
std::string fault(const LossScale& s) {
  const auto number = [](const std::string& name, double value, const std::string& range) {
    return name + " is " + io::Json(value).dump() + ", expected " + range;
  };
  if (!(s.scale > 0 && std::isfinite(static_cast<float>(s.scale))))
    return number("scale", s.scale, "a positive float32");
  if (!(s.growth_factor >= 1 && std::isfinite(s.growth_factor)))
    return number("growth_factor", s.growth_factor, "at least 1");
  if (!(s.backoff_factor > 0 && s.backoff_factor < 1))
    return number("backoff_factor", s.backoff_factor, "between 0 and 1, both excluded");
  if (s.growth_interval < 1)
    return "growth_interval is " + std::to_string(s.growth_interval) + ", expected at least 1";
  if (s.growth_tracker < 0 || s.growth_tracker >= s.growth_interval) {
    return "growth_tracker is " + std::to_string(s.growth_tracker) +
           ", expected at least 0 and below growth_interval " + std::to_string(s.growth_interval);
  }
  return "";
}

/// torch's rule: the product in double, the scale in float32; a scale that would grow to infinity
/// stays unchanged.
void move_scale(LossScale& state, bool found_inf) {
  if (!state.enabled) return;
  if (found_inf) {
    state.scale = static_cast<float>(state.scale * state.backoff_factor);
    state.growth_tracker = 0;
  } else if (++state.growth_tracker == state.growth_interval) {
    const float grown = static_cast<float>(state.scale * state.growth_factor);
    if (std::isfinite(grown)) state.scale = grown;
    state.growth_tracker = 0;
  }
}

/// 1 / scale, rounded to float32 once as torch does.
double inverse(double scale) {
  const float inverse = static_cast<float>(1.0 / scale);
  if (!std::isfinite(inverse)) {
    refuse(ErrorKind::kNumeric, "the loss scale has become too small to unscale with", {},
           "loss scale " + io::Json(scale).dump(), "a scale whose inverse is a float32",
           "every step overflows in FP16: set precision.compute to bf16 or fp32");
  }
  return inverse;
}

std::vector<bool> presence(const std::vector<at::Tensor>& gradients) {
  std::vector<bool> present;
  for (const at::Tensor& gradient : gradients) present.push_back(gradient.defined());
  return present;
}

/// Appends the check's result of another optimizer.
void append(ops::GradStats& all, const ops::GradStats& one) {
  if (all.first_bad < 0 && one.first_bad >= 0)
    all.first_bad = static_cast<int64_t>(all.norms.size()) + one.first_bad;
  all.found_inf |= one.found_inf;
  all.loss_finite &= one.loss_finite;
  all.norm = std::hypot(all.norm, one.norm);
  all.clip = std::min(all.clip, one.clip);
  all.norms.insert(all.norms.end(), one.norms.begin(), one.norms.end());
}

}  // namespace

io::Json loss_scale_json(const LossScale& state) {
  return {{"enabled", state.enabled},
          {"scale", state.scale},
          {"growth_factor", state.growth_factor},
          {"backoff_factor", state.backoff_factor},
          {"growth_interval", state.growth_interval},
          {"growth_tracker", state.growth_tracker}};
}

LossScale loss_scale_from(const io::Json& json) {
  const std::string where = "loss scale", next = "resume from another step, or restore this one";
  LossScale state;
  try {
    state.enabled = io::json_bool(json, "enabled", where);
    state.scale = io::json_number(json, "scale", where);
    state.growth_factor = io::json_number(json, "growth_factor", where);
    state.backoff_factor = io::json_number(json, "backoff_factor", where);
    state.growth_interval = io::json_int(json, "growth_interval", 1, INT64_MAX, where);
    state.growth_tracker = io::json_int(json, "growth_tracker", 0, INT64_MAX, where);
  } catch (const Error& error) {
    throw Error(ErrorKind::kCheckpoint, error.info());
  }
  const io::Json known = loss_scale_json(state);
  for (const auto& [key, value] : json.items()) {
    if (!known.contains(key)) {
      refuse(ErrorKind::kCheckpoint, "unknown field " + quote_text(key), where, {}, {}, next);
    }
  }
  if (const std::string wrong = fault(state); !wrong.empty()) {
    refuse(ErrorKind::kCheckpoint, "bad loss scale", where, wrong, {}, next);
  }
  return state;
}

LossScaler::LossScaler(LossScale state) : state_(state) {
  if (const std::string wrong = fault(state_); !wrong.empty()) {
    refuse(ErrorKind::kInternal, "bad loss scale", {}, wrong);
  }
  state_.scale = state_.enabled ? static_cast<float>(state_.scale) : 1;
}

LossScaler::Checked* LossScaler::find(const Optimizer& optimizer) {
  const auto found = std::ranges::find(checked_, &optimizer, &Checked::optimizer);
  return found == checked_.end() ? nullptr : &*found;
}

at::Tensor LossScaler::scale(const at::Tensor& loss) const {
  require_scalar(loss);
  require_graph(loss, seen_);
  seen_.saw_loss(loss);
  // A scalar tensor, not a number: an FP16 loss is then promoted to float32, as in torch.
  return state_.enabled ? loss * at::scalar_tensor(state_.scale, at::kFloat) : loss;
}

double LossScaler::seed() const {
  seen_.saw_seed();
  return state_.scale;
}

void LossScaler::unscale(Optimizer& optimizer, const at::Tensor& loss, double max_norm,
                         const std::function<void(const ops::GradVerdict&)>& agree) {
  if (const Checked* checked = find(optimizer))
    throw_wrong_stage("unscale", optimizer, checked->stage, {});
  require_scalar(loss);
  const std::vector<at::Tensor> gradients = optimizer.gradients();
  const std::vector<bool> present = presence(gradients);
  if (std::find(present.begin(), present.end(), true) == present.end())
    throw_no_gradient(optimizer, seen_);
  if (state_.enabled) require_scaled(optimizer, seen_);
  const double factor = inverse(state_.scale);
  checked_.push_back({&optimizer, ScalerStage::kUnscaled,
                      ops::check_gradients(gradients, factor, max_norm, loss.detach()), present});
  if (agree) agree(checked_.back().verdict);
  seen_.saw_gradients(optimizer);
}

void LossScaler::step(Optimizer& optimizer, double factor) {
  Checked* checked = find(optimizer);
  if (checked == nullptr || checked->stage != ScalerStage::kUnscaled) {
    std::vector<const Optimizer*> unscaled;
    for (const Checked& other : checked_) {
      if (other.stage == ScalerStage::kUnscaled) unscaled.push_back(other.optimizer);
    }
    throw_wrong_stage("step", optimizer, checked == nullptr ? ScalerStage::kReady : checked->stage,
                      unscaled);
  }
  if (presence(optimizer.gradients()) != checked->present)
    throw_gradients_changed(optimizer, checked->present);
  optimizer.step(factor, checked->verdict);
  checked->stage = ScalerStage::kStepped;
}

ops::GradStats LossScaler::update() {
  if (checked_.empty()) throw_nothing_checked();
  ops::GradStats all;
  for (const Checked& checked : checked_) {
    const ops::GradStats one = ops::read_stats(checked.verdict);
    if (checked.stage == ScalerStage::kStepped) checked.optimizer->commit(!one.found_inf);
    if (&checked == &checked_.front()) all.loss = one.loss;
    append(all, one);
  }
  move_scale(state_, all.found_inf);
  checked_.clear();
  seen_.next_step();
  return all;
}

}  // namespace lft::train
