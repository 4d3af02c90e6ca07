// The interface by which a thread of fill_weights fills pieces: directly in host memory, or on a
// device through pinned buffers.
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
  /// Starts to fill the piece with this index. Returns false if it is already known to contain an
  /// invalid weight.
  virtual bool fill(size_t piece) = 0;
  /// Waits until all pieces are filled.
  virtual void finish() {}
};

struct FillPlan {
  const std::vector<WeightJob>& jobs;
  std::vector<WeightPiece> pieces;
  FillOptions options;
  std::vector<std::atomic<uint64_t>>& digests;  // one per job

  const WeightJob& job(size_t piece) const { return jobs[pieces[piece].job]; }
  /// The elements of the piece in the target.
  at::Tensor target(size_t piece) const {
    const WeightPiece& of = pieces[piece];
    return job(piece).target.view(-1).narrow(0, of.begin - job(piece).begin, of.count);
  }
  /// Reads bytes of the piece's tensor, from `begin` on, and adds them to its digest.
  void read(size_t piece, uint64_t begin, uint64_t bytes, void* to) const {
    job(piece).file->read_range(*job(piece).info, begin, bytes, to);
    digests[pieces[piece].job] += placed_digest(to, bytes, begin);
  }
};

}  // namespace lft::hf
