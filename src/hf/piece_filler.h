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

std::unique_ptr<PieceFiller> host_filler(const FillPlan& plan);

/// What the threads that fill one device share: smallest and largest element of every piece, read
/// once at the end.
class DeviceRange {
 public:
  DeviceRange(const FillPlan& plan, at::Device device);
  std::unique_ptr<PieceFiller> filler();
  /// Of the pieces that hold a weight that is not allowed. After every filler's finish().
  std::vector<size_t> bad_pieces() const;

 private:
  const FillPlan& plan_;
  const at::Device device_;
  std::map<at::ScalarType, at::Tensor> extremes_;  // [pieces, 2] by stored dtype
  std::optional<c10::Event> targets_ready_;
};

}  // namespace lft::hf
