#include "src/train/optim/schedule.h"

#include <algorithm>
#include <cmath>

namespace lft::train {

namespace {

int64_t share_of(int64_t total, double ratio) {
  return static_cast<int64_t>(std::ceil(static_cast<double>(total) * ratio));
}

double half_cosine(double progress) { return 0.5 * (1.0 + std::cos(M_PI * 0.5 * 2.0 * progress)); }

}  // namespace

Schedule Schedule::make(const recipe::Recipe::Optim& optim, int64_t total) {
  Schedule schedule;
  schedule.kind = optim.schedule.value;
  schedule.total = total;
  schedule.warmup = share_of(total, optim.warmup_ratio);
  schedule.decay = std::min(share_of(total, optim.decay_ratio), total - schedule.warmup);
  schedule.least = optim.min_lr_ratio;
  return schedule;
}

double Schedule::factor(int64_t taken) const {
  const auto above_least = [&](double factor) { return factor * (1.0 - least) + least; };
  if (taken < warmup) {
    const double risen =
        static_cast<double>(taken) / static_cast<double>(std::max<int64_t>(1, warmup));
    return kind == Kind::kWsd ? above_least(risen) : risen;
  }
  if (kind == Kind::kConstant) return 1.0;
  if (kind == Kind::kWsd) {
    if (taken < total - decay) return 1.0;
    if (taken >= total) return least;
    const auto fallen = static_cast<double>(taken - (total - decay));
    return std::max(0.0, above_least(half_cosine(fallen / static_cast<double>(decay))));
  }
  const auto decay_steps = static_cast<double>(std::max<int64_t>(1, total - warmup));
  if (kind == Kind::kLinear)
    return above_least(std::max(0.0, static_cast<double>(total - taken) / decay_steps));
  return std::max(0.0, above_least(half_cosine(static_cast<double>(taken - warmup) / decay_steps)));
}

bool Schedule::changes_weights(int64_t taken) const {
  return (taken > 0 && factor(0) > 0) || (taken > 1 && factor(1) > 0);
}

}  // namespace lft::train
