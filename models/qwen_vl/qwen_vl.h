// Qwen2.5-VL and Qwen3-VL: a vision transformer for images of any size -> merger -> decoder with
// positions of time, height and width.
#pragma once
#include "models/family/model.h"
#include "models/qwen_vl/merger.h"

namespace lft::qwen_vl {

class QwenVlImpl : public family::ModelImpl {
 public:
  /// Parameters of `dtype` on `device`, uninitialised and frozen.
  QwenVlImpl(const family::ModelConfig& config, at::ScalarType dtype, at::Device device,
             ops::BaseStorage storage = ops::BaseStorage::kDense);

  family::ImageFeatures image_features(const family::Batch& batch) override;
  int64_t image_positions(const family::ImageShape& image) const override;

  VisionTower vision_tower{nullptr};
  Projector multi_modal_projector{nullptr};

 protected:
  /// Text goes on by one; an image's positions have one time, and the rows and columns of its grid;
  /// what follows it begins after the longer of the two. Undefined where there is no image.
  at::Tensor positions(const family::Batch& batch) const override;
};
TORCH_MODULE(QwenVl);

}  // namespace lft::qwen_vl
