// Dropout whose mask is a pure function of (seed, step, micro-batch, module path, element), so that
// nothing of it is kept.
#pragma once
#include <ATen/core/Tensor.h>

#include <string>
#include <unordered_map>
#include <vector>

#include "kernels/dropout/dropout.h"
#include "models/ops/core/dropout_mask.h"

namespace lft::ops {

/// The streams of all masks of a pass in device memory, where a CUDA graph's kernels read those of
/// the micro-batch at hand. The first pass finds out which modules there are and reads nothing from
/// here.
class DropoutStreams {
 public:
  /// `at_m`: int64 device memory for as many modules. More are an error (kInternal).
  explicit DropoutStreams(at::Tensor at_m) : at_m_(std::move(at_m)) {}
  /// The place of the module's stream; null as long as it was not seen in a pass that is over.
  const uint64_t* place(const std::string& path);
  /// Ends a pass; what it has shown has a place from now on.
  void pass_done() { placed_ = static_cast<int64_t>(paths_.size()); }
  /// Streams of the modules with a place, in the order of their places, for the pass to come.
  std::vector<uint64_t> at(uint64_t step, uint64_t micro_batch) const;

 private:
  at::Tensor at_m_;
  std::unordered_map<std::string, int64_t> index_;
  std::vector<std::string> paths_;
  int64_t placed_ = 0;
};

/// The mask of the module `path` at dropout_position() for drop probability p in [0, 1). Outside
/// any DropoutGuard, or for p = 0, it keeps all. p is rounded to 1/65536, and kept elements are
/// scaled by the inverse of what that keeps.
DropoutMask dropout_mask(double p, const std::string& path);

/// The mask as the kernels take it.
inline DropoutArgs dropout_args(const DropoutMask& mask, bool add) {
  return {.seed = mask.seed,
          .stream = mask.stream,
          .threshold = mask.threshold,
          .scale = mask.scale,
          .add = add,
          .stream_at = mask.stream_at};
}

/// x * mask * scale, without a graph. Element i is x's i-th in row-major order. A mask that keeps
/// all returns x itself.
at::Tensor dropout(const at::Tensor& x, const DropoutMask& mask);
/// y += x * mask * scale, in place. x and y: same shape and dtype.
void add_dropout(at::Tensor& y, const at::Tensor& x, const DropoutMask& mask);

}  // namespace lft::ops
