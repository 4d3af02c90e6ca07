// The factor on the learning rate of every group, with the semantics of transformers'
// get_{constant,linear,cosine}_schedule_with_warmup.
#pragma once
#include <cstdint>
#include <string>

namespace lft::train {

struct Schedule {
  enum class Kind { kConstant, kLinear, kCosine };
  Kind kind = Kind::kCosine;
  int64_t warmup = 0, total = 0;  // optimizer steps

  /// Warm-up steps are ceil(ratio * total). kUsage for an unknown name.
  static Schedule make(const std::string& name, double warmup_ratio, int64_t total);
  /// The factor after `taken` optimizer steps; a skipped step is not taken.
  double factor(int64_t taken) const;
};

}  // namespace lft::train
