// Qwen2-VL, Qwen2.5-VL, Qwen3-VL and Qwen3.5: a vision transformer for images of any size, a
// merger, and a decoder with positions of time, height and width.
#pragma once
#include "models/family/model.h"
#include "models/qwen_vl/merger.h"

namespace lft::qwen_vl {

class QwenVlImpl : public family::ModelImpl {
 public:
  /// Parameters have `dtype` and are on `device`, uninitialised and frozen.
  QwenVlImpl(const family::ModelConfig& config, at::ScalarType dtype, at::Device device,
             ops::BaseStorage storage = ops::BaseStorage::kDense);

  family::ImageFeatures image_features(const family::Batch& batch) override;
  int64_t image_positions(const family::ImageShape& image) const override;

  VisionTower vision_tower{nullptr};
  Projector multi_modal_projector{nullptr};

 protected:
  /// Positions of text increase by one. Those of an image have one time and the rows and columns of
  /// its grid; the text after it continues after the larger of the two. Undefined without images.
  at::Tensor positions(const family::Batch& batch) const override;
};
TORCH_MODULE(QwenVl);

}  // namespace lft::qwen_vl
