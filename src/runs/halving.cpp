#include "src/runs/halving.h"

#include <algorithm>

namespace lft::runs {

int64_t halving_step(int64_t total_steps, int64_t eval_every) {
  const int64_t third = (total_steps + 2) / 3;
  return std::min(total_steps, (third + eval_every - 1) / eval_every * eval_every);
}

}  // namespace lft::runs
