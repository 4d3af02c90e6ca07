// One trainable tensor and what the optimizer keeps for it. Knows no rule.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "models/lora/inject.h"

namespace lft::train {

/// A tensor that a rule keeps of a parameter, zeros before the first update.
struct NamedMoment {
  std::string name;  // exp_avg, ...
  at::Tensor tensor;
  int64_t span = 1;  // as many neighbouring elements of the parameter share one value
};

/// `steps` is this tensor's own t: a step without its gradient, or not taken, leaves it.
struct Slot {
  lora::Trainable param;
  int64_t steps = 0;
  std::vector<NamedMoment> moments = {};

  /// Undefined where the rule keeps none of this name.
  at::Tensor moment(const std::string& name) const;
};

/// The tensors a slot keeps, as a checkpoint names them: exp_avg.<name>, ...
std::vector<std::pair<std::string, at::Tensor>> moment_tensors(const Slot& slot);
/// As before the first update; the weight stays.
void forget_moments(Slot& slot);

}  // namespace lft::train
