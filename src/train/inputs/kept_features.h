// Image features that no step changes, because the vision tower and the projector are frozen: they
// are computed once for each image instead of once for each of its passes.
#pragma once
#include <ATen/core/ScalarType.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "models/family/model.h"

namespace lft::train {

/// Features are computed image by image, so that no bit depends on the other images of a batch or
/// on what is kept, and are found again by their image's pixels. Within an observer's scope
/// (models/base/call.h) they are computed again, so that it sees the tower. Features that are not
/// finite are not kept. Not thread-safe.
class KeptFeatures : public family::FeatureSource {
 public:
  /// Keeps at most `most_bytes`, those that come first.
  explicit KeptFeatures(int64_t most_bytes) : most_bytes_(most_bytes) {}
  family::ImageFeatures features(family::ModelImpl& model, const family::Batch& batch) override;
  family::KeptCost kept() const override { return kept_; }

 private:
  /// Bytes outside of LibTorch's allocator, in which nothing grows from step to step.
  struct Stored {
    std::vector<uint8_t> bytes;
    std::vector<int64_t> sizes;
    at::ScalarType dtype = at::kFloat;
  };
  /// Two digests of the pixels, the shape, and the dtype of the computation.
  using Key = std::vector<int64_t>;

  family::ImageFeatures of_image(family::ModelImpl& model, const family::Batch& image);
  void keep(const Key& key, const std::vector<at::Tensor>& tensors, double seconds);

  const int64_t most_bytes_;
  family::KeptCost kept_;
  std::map<Key, std::vector<Stored>> stored_;  // the features, then those of the deep layers
};

/// Whether features do not depend on this trainable: a run on a CPU keeps them if it has no other.
bool is_of_decoder(const std::string& trainable);

}  // namespace lft::train
