// SigLIP's vision transformer (Zhai et al. 2023): no class token, learned positions, layers as
// CLIP's. Idefics3, SmolVLM and Gemma 3 read its last hidden states after a norm, LLaVA those of
// chosen layers. Shape letters: n tiles, s positions, d hidden, c channels, h w pixels.
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

/// Which learned position a whole tile's patch has: its own, row by row, or the bucket that its
/// fractional coordinates fall in, which rounding makes another one here and there (Idefics3).
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

/// Pools the hidden states to one vector for contrasting with a text. No vision-language model asks
/// for it; its weights are there because checkpoints have them.
class SiglipHeadImpl : public torch::nn::Module {
 public:
  SiglipHeadImpl(const clip::ClipConfig& config, at::TensorOptions options);
};
TORCH_MODULE(SiglipHead);

/// Of whole tiles of image_size: what a smaller image would need, a mask, is not there.
class SiglipVisionImpl : public torch::nn::Module {
 public:
  SiglipVisionImpl(const clip::ClipConfig& config, at::TensorOptions options, Places places,
                   bool has_head);
  /// The last hidden states after the norm: [n, grid * grid, d].
  at::Tensor forward(const at::Tensor& pixels_nchw);
  /// The states before layer i for every i in `feature_layers`, as clip::ClipEncoder gives them.
  std::vector<at::Tensor> forward(const at::Tensor& pixels_nchw,
                                  const std::vector<int64_t>& feature_layers);
  SiglipEmbeddings embeddings{nullptr};
  clip::ClipEncoder encoder{nullptr};
  layers::LayerNorm post_layernorm{nullptr};

 private:
  int64_t layers_;
};
TORCH_MODULE(SiglipVision);

/// SigLIP as LLaVA and Gemma 3 name it, in the place of a CLIP tower.
class SiglipTowerImpl : public torch::nn::Module {
 public:
  SiglipTowerImpl(const clip::ClipConfig& config, at::TensorOptions options, bool has_head);
  /// As SiglipVision's.
  at::Tensor forward(const at::Tensor& pixels_nchw);
  /// As clip::ClipVision.
  std::vector<at::Tensor> forward(const at::Tensor& pixels_nchw,
                                  const std::vector<int64_t>& feature_layers);
  SiglipVision vision_model{nullptr};

 private:
  int64_t layers_;
};
TORCH_MODULE(SiglipTower);

/// Positions of a whole tile's patches by their fractional coordinates, as Idefics3 buckets them:
/// int64 [grid * grid]. Float32, so that what rounding does to a boundary is transformers' too.
at::Tensor bucketed_positions(int64_t grid);

}  // namespace lft::siglip
