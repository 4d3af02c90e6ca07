// SmolVLM (Marafioti et al. 2025) and Idefics3 (Laurencon et al. 2024): SigLIP over tiles of an
// image, pixel shuffle and one linear layer, and Llama. Shape letters: n tiles, s patches, d
// hidden.
#pragma once
#include "models/family/model.h"
#include "models/siglip/siglip.h"
#include "models/smolvlm/config.h"

namespace lft::smolvlm {

class ProjectionImpl : public torch::nn::Module {
 public:
  ProjectionImpl(const family::ModelConfig& config, at::TensorOptions options);
  at::Tensor forward(const at::Tensor& x);
  layers::Linear proj{nullptr};
};
TORCH_MODULE(Projection);

/// The features of scale x scale patches are concatenated and projected to one position.
class ConnectorImpl : public torch::nn::Module {
 public:
  ConnectorImpl(const family::ModelConfig& config, at::TensorOptions options);
  at::Tensor forward(const at::Tensor& features_nsd);  // [n, s / scale^2, text hidden]
  Projection modality_projection{nullptr};

 private:
  int64_t scale_;
};
TORCH_MODULE(Connector);

class SmolVlmImpl : public family::ModelImpl {
 public:
  /// Parameters have `dtype` and are on `device`, uninitialised and frozen.
  SmolVlmImpl(const family::ModelConfig& config, at::ScalarType dtype, at::Device device,
              ops::BaseStorage storage = ops::BaseStorage::kDense);

  family::ImageFeatures image_features(const family::Batch& batch) override;
  int64_t image_positions(const family::ImageShape& image) const override;

  siglip::SiglipVision vision_tower{nullptr};
  Connector multi_modal_projector{nullptr};
};
TORCH_MODULE(SmolVlm);

}  // namespace lft::smolvlm
