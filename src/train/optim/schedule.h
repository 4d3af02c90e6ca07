// The factor on the learning rates of all groups, with the semantics of transformers'
// get_{constant,linear,cosine}_schedule_with_warmup, get_polynomial_decay_schedule_with_warmup
// (power 1), get_cosine_with_min_lr_schedule_with_warmup and get_wsd_schedule.
#pragma once
#include <cstdint>

#include "src/recipe/recipe.h"

namespace lft::train {

struct Schedule {
  using Kind = recipe::ScheduleKind;
  Kind kind = Kind::kCosine;
  int64_t warmup = 0, decay = 0, total = 0;  // optimizer steps; decay: for kWsd
  double least = 0;                          // the final factor; not for kConstant

  /// ceil(ratio * total) warm-up steps; the same for the decay, of the steps after warm-up.
  static Schedule make(const recipe::Recipe::Optim& optim, int64_t total);
  /// The factor after `taken` optimizer steps; a skipped step is not taken.
  double factor(int64_t taken) const;
  /// Whether one of the first `taken` optimizer steps has a factor above zero. A warm-up starts at
  /// zero.
  bool changes_weights(int64_t taken) const;
};

}  // namespace lft::train
