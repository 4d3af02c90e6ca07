// LLaVA-1.5: CLIP ViT -> MLP projector -> Llama. Visual Instruction Tuning (Liu et al. 2023), arXiv
// 2310.03744 for 1.5. Shape letters: n images, p image positions, d hidden, c channels, h w pixels.
#pragma once
#include "models/clip/clip.h"
#include "models/family/model.h"
#include "models/llava/config.h"
#include "models/llava/projector.h"

namespace lft::llava {

class LlavaImpl : public family::ModelImpl {
 public:
  /// Parameters of `dtype` on `device`, uninitialised and frozen.
  LlavaImpl(const family::ModelConfig& config, at::ScalarType dtype, at::Device device,
            ops::BaseStorage storage = ops::BaseStorage::kDense);

  family::ImageFeatures image_features(const family::Batch& batch) override;
  int64_t image_positions(const family::ImageShape& image) const override;

  clip::ClipVision vision_tower{nullptr};
  Projector multi_modal_projector{nullptr};
};
TORCH_MODULE(Llava);

}  // namespace lft::llava
