// Sums the gradients of a step's micro-batches in the order of src/base/sum_tree.h instead of
// sequentially, so that processes that share the micro-batches add in the same order.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "src/base/sum_tree.h"

namespace lft::train {

/// Whether gradients of this size are added in that order: each partial sum needs the same memory
/// again. Those above 1 GiB on a GPU are added sequentially, which is as exact, but the bits depend
/// on the number of processes.
bool adds_by_tree(double bytes, at::Device device);

class GradientTree {
 public:
  /// `flat`: the buffer for the gradients of each micro-batch, initially zero. `share`: indices of
  /// this process's micro-batches. A single micro-batch needs no copy.
  GradientTree(at::Tensor flat, Range share);
  /// Call it before this micro-batch: earlier ones that were not run count as zeros.
  void before(int64_t number);
  /// `flat` is then the sum of all.
  void finish() { before(share_.end); }

 private:
  at::Tensor flat_;
  Range share_;
  bool by_tree_;
  std::vector<int64_t> additions_;
  std::vector<at::Tensor> waiting_;  // undefined: zeros
  int64_t done_ = 0;                 // micro-batches before share_.begin + done_ are in waiting_
  bool written_ = false;             // flat_ contains that of share_.begin + done_
};

}  // namespace lft::train
