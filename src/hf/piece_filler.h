// How one thread of fill_weights fills the pieces that it gets: straight into host memory, or by
// way of pinned buffers into a device's.
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>

#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "src/base/hash.h"
#include "src/hf/fill_weights.h"

namespace lft::hf {

struct WeightPiece {
  size_t job;
  int64_t begin, count;  // elements of the tensor
};

class PieceFiller {
 public:
  virtual ~PieceFiller() = default;
  /// The piece with this index is on its way into its target. False where it is known by now that a
  /// weight in it is not allowed.
  virtual bool fill(size_t piece) = 0;
  /// Until everything has arrived.
  virtual void finish() {}
};

struct FillPlan {
  const std::vector<WeightJob>& jobs;
  std::vector<WeightPiece> pieces;
  FillOptions options;
  std::vector<std::atomic<uint64_t>>& digests;  // a job

  const WeightJob& job(size_t piece) const { return jobs[pieces[piece].job]; }
  /// The piece's elements of the target.
  at::Tensor target(size_t piece) const {
    const WeightPiece& of = pieces[piece];
    return job(piece).target.view(-1).narrow(0, of.begin - job(piece).begin, of.count);
  }
  /// Reads bytes of the piece's tensor, from `begin` on, and counts them in its digest.
  void read(size_t piece, uint64_t begin, uint64_t bytes, void* to) const {
    job(piece).file->read_range(*job(piece).info, begin, bytes, to);
    digests[pieces[piece].job] += placed_digest(to, bytes, begin);
  }
};

}  // namespace lft::hf
