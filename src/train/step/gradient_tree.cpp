#include "src/train/step/gradient_tree.h"

#include <ATen/Functions.h>

#include <utility>

namespace lft::train {

bool adds_by_tree(double bytes, at::Device device) {
  constexpr double kMost = 1 << 30;
  return device.is_cpu() || bytes <= kMost;
}

GradientTree::GradientTree(at::Tensor flat, Range share)
    : flat_(std::move(flat)),
      share_(share),
      by_tree_(adds_by_tree(static_cast<double>(flat_.nbytes()), flat_.device())),
      additions_(additions_after(share.size())) {}

void GradientTree::before(int64_t number) {
  if (!by_tree_) return;
  for (; done_ < number - share_.begin; ++done_, written_ = false) {
    at::Tensor sum = written_ ? flat_ : at::Tensor();
    for (int64_t k = 0; k < additions_[static_cast<size_t>(done_)]; ++k) {
      const at::Tensor left = std::move(waiting_.back());
      waiting_.pop_back();
      if (!left.defined()) continue;
      if (sum.defined()) {
        flat_.add_(left);
      } else {
        flat_.copy_(left);
        sum = flat_;
      }
    }
    if (done_ + 1 == share_.size()) return;
    waiting_.push_back(sum.defined() ? sum.clone() : sum);
    if (sum.defined()) flat_.zero_();
  }
  written_ = true;
}

}  // namespace lft::train
