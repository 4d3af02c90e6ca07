#include "src/train/optim/schedule.h"

#include <algorithm>
#include <cmath>

#include "kernels/common/error.h"

namespace lft::train {

Schedule Schedule::make(const std::string& name, double warmup_ratio, int64_t total) {
  Schedule schedule;
  if (name == "constant") {
    schedule.kind = Kind::kConstant;
  } else if (name == "linear") {
    schedule.kind = Kind::kLinear;
  } else if (name == "cosine") {
    schedule.kind = Kind::kCosine;
  } else {
    refuse(ErrorKind::kUsage, "unknown schedule", "optim.schedule", name,
           "constant, linear or cosine");
  }
  schedule.total = total;
  schedule.warmup = static_cast<int64_t>(std::ceil(static_cast<double>(total) * warmup_ratio));
  return schedule;
}

double Schedule::factor(int64_t taken) const {
  if (taken < warmup)
    return static_cast<double>(taken) / static_cast<double>(std::max<int64_t>(1, warmup));
  if (kind == Kind::kConstant) return 1.0;
  const auto decay_steps = static_cast<double>(std::max<int64_t>(1, total - warmup));
  if (kind == Kind::kLinear) return std::max(0.0, static_cast<double>(total - taken) / decay_steps);
  const double progress = static_cast<double>(taken - warmup) / decay_steps;
  return std::max(0.0, 0.5 * (1.0 + std::cos(M_PI * 0.5 * 2.0 * progress)));
}

}  // namespace lft::train
