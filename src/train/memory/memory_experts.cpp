#include "src/train/memory/memory_experts.h"

namespace lft::train {

double experts_keep(const llama::ExpertConfig& experts, double tokens, double hidden,
                    double compute) {
  const auto choices = static_cast<double>(experts.per_token);
  const double router = tokens * (4 * static_cast<double>(experts.count) +
                                  choices * (4 * sizeof(int64_t) + 4 + compute));
  const double shared =
      experts.shared_intermediate == 0
          ? 0
          : tokens * compute * (2 * static_cast<double>(experts.shared_intermediate) + hidden);
  return router + shared +
         tokens * choices * 2 * static_cast<double>(experts.intermediate) * compute;
}

double experts_width(const llama::ExpertConfig& experts, double tokens, double hidden,
                     double compute) {
  const double rows = tokens * static_cast<double>(experts.per_token);
  // Gate and up, or their gradients, and the rows of the output or of the input's gradient.
  return compute * (rows * (2 * static_cast<double>(experts.intermediate) + hidden) +
                    tokens * (hidden + 3 * static_cast<double>(experts.shared_intermediate)));
}

}  // namespace lft::train
