// One trainable tensor and its optimizer state. Independent of the rule.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "models/lora/inject.h"

namespace lft::train {

/// A tensor of optimizer state for a parameter, zero before the first update.
struct NamedMoment {
  std::string name;  // exp_avg, ...
  at::Tensor tensor;
  int64_t span = 1;  // number of adjacent parameter elements that share one value
};

/// `steps` is this tensor's own t: unchanged by a step without its gradient or one not taken.
struct Slot {
  lora::Trainable param;
  int64_t steps = 0;
  std::vector<NamedMoment> moments = {};

  /// Undefined if the rule has no moment of this name.
  at::Tensor moment(const std::string& name) const;
};

/// The tensors of a slot under their names in a checkpoint: exp_avg.<name>, ...
std::vector<std::pair<std::string, at::Tensor>> moment_tensors(const Slot& slot);
/// Resets the state to that before the first update; the weight is unchanged.
void forget_moments(Slot& slot);

}  // namespace lft::train
