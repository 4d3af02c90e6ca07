// The factor on the learning rate of every group, with the semantics of transformers'
// get_{constant,linear,cosine}_schedule_with_warmup, get_polynomial_decay_schedule_with_warmup
// (power 1), get_cosine_with_min_lr_schedule_with_warmup and get_wsd_schedule.
#pragma once
#include <cstdint>

#include "src/recipe/recipe.h"

namespace lft::train {

struct Schedule {
  using Kind = recipe::ScheduleKind;
  Kind kind = Kind::kCosine;
  int64_t warmup = 0, decay = 0, total = 0;  // optimizer steps; decay: of kWsd
  double least = 0;                          // the factor at the end; not of kConstant

  /// Warm-up steps are ceil(ratio * total), and so are those of the decay, of what warm-up leaves.
  static Schedule make(const recipe::Recipe::Optim& optim, int64_t total);
  /// The factor after `taken` optimizer steps; a skipped step is not taken.
  double factor(int64_t taken) const;
};

}  // namespace lft::train
