// AdamW over FP32 masters in groups of one learning rate each. Owns the moments; knows no schedule and no clipping.
#pragma once
#include <string>
#include <vector>

#include "models/lora/inject.h"
#include "models/ops/adamw.h"

namespace lft {

struct ParamGroup {
  std::string name;  // base, projector
  double lr = 0;     // peak; the schedule multiplies it
  std::vector<size_t> members;
};

/// One trainable and what the optimizer keeps for it. `steps` is this tensor's own t: a step without its gradient, or not taken, leaves it.
struct AdamSlot {
  Trainable param;
  at::Tensor exp_avg, exp_avg_sq;
  int64_t steps = 0;
};

class AdamW {
 public:
  AdamW(const std::vector<Trainable>& trainables, std::vector<ParamGroup> groups, AdamWOptions options);
  /// By slot; undefined where absent.
  std::vector<at::Tensor> gradients() const;
  /// Starts the update number steps + 1 of every slot that has a gradient, at group.lr * factor and clipped as the verdict over gradients()
  /// says; a no-op on the device where that found a non-finite value. Does not wait. An absent gradient keeps weight, moments and t.
  void step(double factor, const GradVerdict& verdict);
  /// To be called once read_stats() tells whether the last step() was taken: then its slots count it.
  void commit(bool taken);
  void drop_gradients();

  std::vector<AdamSlot>& slots() { return slots_; }  // in the order of the trainables
  const std::vector<AdamSlot>& slots() const { return slots_; }
  std::vector<ParamGroup>& groups() { return groups_; }

 private:
  AdamWOptions options_;
  std::vector<ParamGroup> groups_;
  std::vector<AdamSlot> slots_;
  std::vector<size_t> stepped_;  // slots of the last step(), until commit()
};

/// The base group, and a group "projector" when its learning rate differs and it has members. projector_lr < 0 means lr.
std::vector<ParamGroup> param_groups(const std::vector<Trainable>& trainables, double lr, double projector_lr);

}  // namespace lft
