// Dropout with a mask that is a pure function of (seed, step, micro-batch, module path, element),
// so it is not stored.
#pragma once
#include <ATen/core/Tensor.h>

#include <string>
#include <unordered_map>
#include <vector>

#include "kernels/dropout/dropout.h"
#include "models/ops/core/dropout_mask.h"

namespace lft::ops {

/// The streams of all masks of a pass in device memory, from which the kernels of a CUDA
/// graph read those of the current micro-batch. The first pass only collects the
/// modules.
class DropoutStreams {
 public:
  /// `at_m`: int64 device memory for its number of modules; more are an error (kInternal).
  explicit DropoutStreams(at::Tensor at_m) : at_m_(std::move(at_m)) {}
  /// The address of the module's stream; null until a pass with the module has ended.
  const uint64_t* place(const std::string& path);
  /// Ends a pass: the modules that were called in it get an address.
  void pass_done() { placed_ = static_cast<int64_t>(paths_.size()); }
  /// The streams for a step and micro-batch, in the order of their addresses.
  std::vector<uint64_t> at(uint64_t step, uint64_t micro_batch) const;

 private:
  at::Tensor at_m_;
  std::unordered_map<std::string, int64_t> index_;
  std::vector<std::string> paths_;
  int64_t placed_ = 0;
};

/// The mask of the module `path` at dropout_position() for drop probability p in [0, 1). Outside
/// any DropoutGuard, or for p = 0, it keeps all elements. p is rounded to 1/65536, and kept
/// elements are scaled by the inverse of the resulting keep probability.
DropoutMask dropout_mask(double p, const std::string& path);

/// The mask as an argument of the kernels.
inline DropoutArgs dropout_args(const DropoutMask& mask, bool add) {
  return {.seed = mask.seed,
          .stream = mask.stream,
          .threshold = mask.threshold,
          .scale = mask.scale,
          .add = add,
          .stream_at = mask.stream_at};
}

/// x * mask * scale, without a graph. Element i is the i-th of x in row-major order. Returns x
/// itself if the mask keeps all elements.
at::Tensor dropout(const at::Tensor& x, const DropoutMask& mask);
/// y += x * mask * scale, in place. x and y: same shape and dtype.
void add_dropout(at::Tensor& y, const at::Tensor& x, const DropoutMask& mask);

}  // namespace lft::ops
