#include "src/train/memory/memory_experts.h"

#include <algorithm>

namespace lft::train {

double ExpertPass::kept() const {
  const auto shared = static_cast<double>(experts.shared_intermediate);
  // Float32 probabilities; of each expert of a token its index, its place among the rows and back,
  // its probability and its share.
  const double router = tokens * 4 * static_cast<double>(experts.count) +
                        rows() * (4 * sizeof(int64_t) + 4 + compute);
  return router + gate_up() + (shared > 0 ? tokens * compute * (2 * shared + hidden) : 0);
}

double ExpertPass::outputs() const {
  return compute * hidden * (rows() * (sums_copy ? 2 : 1) + tokens);
}

double ExpertPass::working(double width) const {
  const double balanced = rows() * at_a_time / static_cast<double>(experts.count);
  return std::min(rows(), std::max(tokens, balanced)) * width * compute;
}

double ExpertPass::forward() const {
  // The input of an expert; or gate, up, their product and its share.
  const auto inner = static_cast<double>(experts.intermediate),
             shared = static_cast<double>(experts.shared_intermediate);
  return std::max(outputs() + working(4 * inner),
                  compute * tokens * (shared > 0 ? shared + 2 * hidden : 0));
}

double ExpertPass::backward() const {
  const auto inner = static_cast<double>(experts.intermediate);
  // The gradients of gate and up; these remain, and gate and up themselves do not, while the
  // gradient of the input is computed.
  return std::max(gate_up() + working(8 * inner + hidden), outputs() + working(2 * hidden));
}

}  // namespace lft::train
