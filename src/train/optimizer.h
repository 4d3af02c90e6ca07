// AdamW over FP32 masters in groups of one learning rate each. Owns the moments; knows no schedule and no clipping.
#pragma once
#include <array>
#include <string>
#include <vector>

#include "models/lora/inject.h"

namespace lft {

struct AdamWOptions {
  std::array<double, 2> betas = {0.9, 0.999};
  double eps = 1e-8, weight_decay = 0;  // decoupled, on every tensor
};

struct ParamGroup {
  std::string name;  // base, projector
  double lr = 0;     // peak; the schedule multiplies it
  std::vector<size_t> members;
};

/// One trainable and what the optimizer keeps for it. `steps` is this tensor's own t (float32 scalar): a step without a gradient leaves it.
struct AdamSlot {
  Trainable param;
  at::Tensor exp_avg, exp_avg_sq, steps;
};

class AdamW {
 public:
  AdamW(const std::vector<Trainable>& trainables, std::vector<ParamGroup> groups, AdamWOptions options);
  /// One update with the gradients that are there, at group.lr * factor. An absent gradient keeps weight, moments and t.
  void step(double factor);
  void drop_gradients();

  std::vector<AdamSlot>& slots() { return slots_; }  // in the order of the trainables
  std::vector<ParamGroup>& groups() { return groups_; }

 private:
  AdamWOptions options_;
  std::vector<ParamGroup> groups_;
  std::vector<AdamSlot> slots_;
};

/// The base group, and a group "projector" when its learning rate differs and it has members. projector_lr < 0 means lr.
std::vector<ParamGroup> param_groups(const std::vector<Trainable>& trainables, double lr, double projector_lr);

}  // namespace lft
