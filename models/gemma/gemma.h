// Gemma 3 (Gemma team 2025, arXiv 2503.19786): SigLIP over the whole image, patches averaged to a
// fixed number of positions, a norm and a projection, and Gemma's decoder, in which the positions
// of an image see each other. Shape letters: n images, s patches, p positions, d hidden.
#pragma once
#include "models/family/model.h"
#include "models/gemma/config.h"
#include "models/siglip/siglip.h"

namespace lft::gemma {

class ProjectorImpl : public torch::nn::Module {
 public:
  ProjectorImpl(const family::ModelConfig& config, at::TensorOptions options);
  at::Tensor forward(const at::Tensor& features_nsd);  // [n, p, text hidden]
  layers::RmsNorm mm_soft_emb_norm{nullptr};
  at::Tensor mm_input_projection_weight;  // [vision hidden, text hidden]; not a linear layer,
                                          // so no adapter is injected

 private:
  int64_t grid_, pool_;
};
TORCH_MODULE(Projector);

class GemmaImpl : public family::ModelImpl {
 public:
  /// Parameters have `dtype` and are on `device`, uninitialised and frozen.
  GemmaImpl(const family::ModelConfig& config, at::ScalarType dtype, at::Device device,
            ops::BaseStorage storage = ops::BaseStorage::kDense);

  family::ImageFeatures image_features(const family::Batch& batch) override;
  int64_t image_positions(const family::ImageShape& image) const override;

  siglip::SiglipTower vision_tower{nullptr};
  Projector multi_modal_projector{nullptr};
};
TORCH_MODULE(Gemma);

}  // namespace lft::gemma
