// SigLIP's vision transformer (Zhai et al. 2023): no class token, learned positions, CLIP's layers.
// Idefics3, SmolVLM and Gemma 3 use its last hidden states after a norm, LLaVA those of selected
// layers. Shape letters: n tiles, s positions, d hidden, c channels, h w pixels.
#pragma once
#include "models/clip/clip.h"

namespace lft::siglip {

/// The convolution with stride = kernel = patch, as one matrix product over flattened patches.
class SiglipPatchEmbeddingImpl : public torch::nn::Module {
 public:
  SiglipPatchEmbeddingImpl(const clip::ClipConfig& config, at::TensorOptions options);
  at::Tensor forward(const at::Tensor& pixels_nchw);  // [n, grid * grid, d]
  at::Tensor weight, bias;                            // [d, c, patch, patch], [d]
};
TORCH_MODULE(SiglipPatchEmbedding);

/// The learned position of a patch: its index, or the bucket of its fractional coordinates, which
/// differs for some patches because of rounding (Idefics3).
enum class Places { kRowByRow, kBucketed };

class SiglipEmbeddingsImpl : public torch::nn::Module {
 public:
  SiglipEmbeddingsImpl(const clip::ClipConfig& config, at::TensorOptions options, Places places);
  at::Tensor forward(const at::Tensor& pixels_nchw);  // [n, grid * grid, d]
  SiglipPatchEmbedding patch_embedding{nullptr};
  layers::Embedding position_embedding{nullptr};

 private:
  at::Tensor ids_s_;  // the position of each patch
};
TORCH_MODULE(SiglipEmbeddings);

/// Pools the hidden states to one vector. Vision-language models do not use it; it exists because
/// checkpoints contain its weights.
class SiglipHeadImpl : public torch::nn::Module {
 public:
  SiglipHeadImpl(const clip::ClipConfig& config, at::TensorOptions options);
};
TORCH_MODULE(SiglipHead);

/// Supports only whole tiles of image_size: there is no mask for smaller images.
class SiglipVisionImpl : public torch::nn::Module {
 public:
  SiglipVisionImpl(const clip::ClipConfig& config, at::TensorOptions options, Places places,
                   bool has_head);
  /// The last hidden states after the norm: [n, grid * grid, d].
  at::Tensor forward(const at::Tensor& pixels_nchw);
  /// The states before layer i for every i in `feature_layers`, as in clip::ClipEncoder.
  std::vector<at::Tensor> forward(const at::Tensor& pixels_nchw,
                                  const std::vector<int64_t>& feature_layers);
  SiglipEmbeddings embeddings{nullptr};
  clip::ClipEncoder encoder{nullptr};
  layers::LayerNorm post_layernorm{nullptr};

 private:
  int64_t layers_;
};
TORCH_MODULE(SiglipVision);

/// SigLIP under the names that LLaVA and Gemma 3 use, instead of a CLIP tower.
class SiglipTowerImpl : public torch::nn::Module {
 public:
  SiglipTowerImpl(const clip::ClipConfig& config, at::TensorOptions options, bool has_head);
  /// As in SiglipVision.
  at::Tensor forward(const at::Tensor& pixels_nchw);
  /// As in clip::ClipVision.
  std::vector<at::Tensor> forward(const at::Tensor& pixels_nchw,
                                  const std::vector<int64_t>& feature_layers);
  SiglipVision vision_model{nullptr};

 private:
  int64_t layers_;
};
TORCH_MODULE(SiglipTower);

/// The positions of the patches of a whole tile by the buckets of their fractional coordinates, as
/// in Idefics3: int64 [grid * grid]. Computed in float32, so that rounding at bucket boundaries is
/// the same as in transformers.
at::Tensor bucketed_positions(int64_t grid);

/// Throws kInput unless the pixels are tiles of image_size: [n, c, h, w].
void check_tiles(const at::Tensor& pixels, const clip::ClipConfig& vision);

}  // namespace lft::siglip
