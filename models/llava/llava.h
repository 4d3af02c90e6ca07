// LLaVA-1.5 (Visual Instruction Tuning, Liu et al. 2023; arXiv 2310.03744 for 1.5): CLIP or SigLIP,
// an MLP projector, and the decoder. NeXT and OneVision split an image into tiles of the tower's
// size and join their features again. Shape letters: n tiles, p positions of a tile, d hidden, c
// channels, h w pixels.
#pragma once
#include "models/clip/clip.h"
#include "models/family/model.h"
#include "models/llava/config.h"
#include "models/llava/projector.h"
#include "models/siglip/siglip.h"

namespace lft::llava {

class LlavaImpl : public family::ModelImpl {
 public:
  /// Parameters have `dtype` and are on `device`, uninitialised and frozen.
  LlavaImpl(const family::ModelConfig& config, at::ScalarType dtype, at::Device device,
            ops::BaseStorage storage = ops::BaseStorage::kDense);

  family::ImageFeatures image_features(const family::Batch& batch) override;
  int64_t image_positions(const family::ImageShape& image) const override;

  at::Tensor image_newline;  // [d], NeXT and OneVision: ends each line of an image's features
  clip::ClipVision vision_tower{nullptr};
  siglip::SiglipTower siglip_tower{nullptr};  // instead of vision_tower, under the same name
  Projector multi_modal_projector{nullptr};

 private:
  std::vector<at::Tensor> tower_features(const at::Tensor& pixels_nchw);
  /// The features of one image from those of its tiles: the whole image, then the grid.
  at::Tensor joined_tiles(const at::Tensor& tiles_npd, const family::ImageShape& image) const;
};
TORCH_MODULE(Llava);

}  // namespace lft::llava
