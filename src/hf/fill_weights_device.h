// Fills weights in device memory through pinned buffers.
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>

#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "src/hf/piece_filler.h"

namespace lft::hf {

/// State of the threads that fill one device: the smallest and the largest element of every piece,
/// read once at the end.
class DeviceRange {
 public:
  DeviceRange(const FillPlan& plan, at::Device device);
  std::unique_ptr<PieceFiller> filler();
  /// The pieces that contain an invalid weight. Must be called after finish() of every filler.
  std::vector<size_t> bad_pieces() const;

 private:
  const FillPlan& plan_;
  const at::Device device_;
  std::map<at::ScalarType, at::Tensor> extremes_;  // [pieces, 2], by stored dtype
  std::optional<c10::Event> targets_ready_;
};

}  // namespace lft::hf
