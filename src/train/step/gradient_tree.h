// Gradients of a step's micro-batches, added in the order of src/base/sum_tree.h and not as they
// come: so that processes that share the micro-batches add the same numbers in the same order.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "src/base/sum_tree.h"

namespace lft::train {

/// Whether gradients of this size are added in that order: each waiting sum takes as much memory
/// again. Those of more than a GiB on a GPU are added as they come, which is as exact, but other
/// numbers of processes give other bits.
bool adds_by_tree(double bytes, at::Device device);

class GradientTree {
 public:
  /// `flat`: where every micro-batch gathers its gradients, zeros now. `share`: numbers of the
  /// micro-batches that this process runs. Of one micro-batch nothing is copied.
  GradientTree(at::Tensor flat, Range share);
  /// A micro-batch of this number comes now: those before it that were not run count as zeros.
  void before(int64_t number);
  /// `flat` is the sum of all.
  void finish() { before(share_.end); }

 private:
  at::Tensor flat_;
  Range share_;
  bool by_tree_;
  std::vector<int64_t> additions_;
  std::vector<at::Tensor> waiting_;  // undefined: zeros
  int64_t done_ = 0;                 // micro-batches before share_.begin + done_ are in waiting_
  bool written_ = false;             // flat_ holds the one of share_.begin + done_
};

}  // namespace lft::train
