// InternVL 3 and 3.5 (Zhu et al. 2025, arXiv 2504.10479): InternViT over tiles of an image, pixel
// shuffle and an MLP, and Qwen2 or Qwen3.
#pragma once
#include "models/family/model.h"
#include "models/internvl/vision.h"

namespace lft::internvl {

/// The features of scale x scale patches are concatenated and projected to one position.
class ProjectorImpl : public torch::nn::Module {
 public:
  ProjectorImpl(const family::ModelConfig& config, at::TensorOptions options);
  at::Tensor forward(const at::Tensor& features_nsd);  // [n, s / scale^2, text hidden]
  layers::LayerNorm layer_norm{nullptr};
  layers::Linear linear_1{nullptr}, linear_2{nullptr};

 private:
  int64_t scale_;
  std::string activation_;
};
TORCH_MODULE(Projector);

class InternVlImpl : public family::ModelImpl {
 public:
  /// Parameters have `dtype` and are on `device`, uninitialised and frozen.
  InternVlImpl(const family::ModelConfig& config, at::ScalarType dtype, at::Device device,
               ops::BaseStorage storage = ops::BaseStorage::kDense);

  family::ImageFeatures image_features(const family::Batch& batch) override;
  int64_t image_positions(const family::ImageShape& image) const override;

  VisionTower vision_tower{nullptr};
  Projector multi_modal_projector{nullptr};
};
TORCH_MODULE(InternVl);

}  // namespace lft::internvl
