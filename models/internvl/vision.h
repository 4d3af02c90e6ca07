// InternViT (Chen et al. 2023, arXiv 2312.14238) over tiles of one size: a class token, learned
// positions, and a learned scale on the output of each half of a block. Shape letters: n tiles, s
// positions (class first), d hidden.
#pragma once
#include "models/clip/clip.h"
#include "models/internvl/config.h"
#include "models/layers/either_norm.h"
#include "models/siglip/siglip.h"

namespace lft::internvl {

/// The names of a block's parts, which differ between the layouts.
struct BlockNames {
  const char *attention, *output, *before, *after, *scale_1, *scale_2;
};
const BlockNames& block_names(Layout layout);

class VisionAttentionImpl : public torch::nn::Module {
 public:
  VisionAttentionImpl(const InternVlFields& config, at::TensorOptions options);
  at::Tensor forward(const at::Tensor& x_nsd);
  layers::Linear q_proj{nullptr}, k_proj{nullptr}, v_proj{nullptr};
  layers::Linear qkv{nullptr};  // original layout: one layer instead of three
  layers::Linear output{nullptr};
  layers::RmsNorm q_norm{nullptr}, k_norm{nullptr};  // over all heads; null: none

 private:
  int64_t heads_;
  const BlockNames& names_;
};
TORCH_MODULE(VisionAttention);

class VisionLayerImpl : public torch::nn::Module {
 public:
  VisionLayerImpl(const InternVlFields& config, at::TensorOptions options);
  at::Tensor forward(const at::Tensor& x_nsd);
  layers::EitherNorm before, after;
  VisionAttention attention{nullptr};
  clip::ClipMlp mlp{nullptr};
  at::Tensor scale_1, scale_2;  // [d]

 private:
  const BlockNames& names_;
};
TORCH_MODULE(VisionLayer);

class VisionEncoderImpl : public torch::nn::Module {
 public:
  VisionEncoderImpl(const InternVlFields& config, at::TensorOptions options);
  at::Tensor forward(const at::Tensor& x_nsd);
  layers::Stack<VisionLayer> layer;
};
TORCH_MODULE(VisionEncoder);

class PatchEmbeddingsImpl : public torch::nn::Module {
 public:
  PatchEmbeddingsImpl(const clip::ClipConfig& config, at::TensorOptions options);
  at::Tensor forward(const at::Tensor& pixels_nchw);  // [n, grid * grid, d]
  siglip::SiglipPatchEmbedding projection{nullptr};
};
TORCH_MODULE(PatchEmbeddings);

class EmbeddingsImpl : public torch::nn::Module {
 public:
  EmbeddingsImpl(const clip::ClipConfig& config, at::TensorOptions options);
  at::Tensor forward(const at::Tensor& pixels_nchw);  // [n, 1 + grid * grid, d]
  at::Tensor cls_token, position_embeddings;          // [1, 1, d], [1, 1 + grid * grid, d]
  PatchEmbeddings patch_embeddings{nullptr};
};
TORCH_MODULE(Embeddings);

class VisionTowerImpl : public torch::nn::Module {
 public:
  VisionTowerImpl(const InternVlFields& config, at::TensorOptions options);
  /// The last states of the patches, without a final norm: [n, grid * grid, d].
  at::Tensor forward(const at::Tensor& pixels_nchw);
  Embeddings embeddings{nullptr};
  VisionEncoder encoder{nullptr};
};
TORCH_MODULE(VisionTower);

}  // namespace lft::internvl
