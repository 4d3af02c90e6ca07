// SigLIP's vision transformer (Zhai et al. 2023) as Idefics3 and SmolVLM use it: no class token,
// learned positions, the last hidden states after a norm. Its layers are CLIP's. Shape letters: n
// tiles, s positions, d hidden, c channels, h w pixels.
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

class SiglipEmbeddingsImpl : public torch::nn::Module {
 public:
  SiglipEmbeddingsImpl(const clip::ClipConfig& config, at::TensorOptions options);
  at::Tensor forward(const at::Tensor& pixels_nchw);  // [n, grid * grid, d]
  SiglipPatchEmbedding patch_embedding{nullptr};
  layers::Embedding position_embedding{nullptr};

 private:
  at::Tensor ids_s_;  // the position of each patch
};
TORCH_MODULE(SiglipEmbeddings);

/// Of whole tiles of image_size: what a smaller image would need, a mask, is not there.
class SiglipVisionImpl : public torch::nn::Module {
 public:
  SiglipVisionImpl(const clip::ClipConfig& config, at::TensorOptions options);
  at::Tensor forward(const at::Tensor& pixels_nchw);  // [n, grid * grid, d]
  SiglipEmbeddings embeddings{nullptr};
  clip::ClipEncoder encoder{nullptr};
  layers::LayerNorm post_layernorm{nullptr};

 private:
  int64_t layers_;
};
TORCH_MODULE(SiglipVision);

/// Positions of a whole tile's patches by their fractional coordinates, as Idefics3 buckets them:
/// int64 [grid * grid]. Float32, so that what rounding does to a boundary is transformers' too.
at::Tensor bucketed_positions(int64_t grid);

}  // namespace lft::siglip
