// The vision transformers of Qwen2-VL (Wang et al. 2024, arXiv 2409.12191), Qwen2.5-VL (Bai et al.
// 2025, arXiv 2502.13923), Qwen3-VL and Qwen3.5: patches of images of any size, 2-D rotary
// positions, attention within an image or, in Qwen2.5-VL, within its windows. Shape letters: s
// patches of all images, d hidden.
#pragma once
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <memory>
#include <vector>

#include "models/layers/either_norm.h"
#include "models/layers/embedding.h"
#include "models/layers/linear.h"
#include "models/layers/stack.h"
#include "models/qwen_vl/grid.h"

namespace lft::qwen_vl {

constexpr double kNormEps = 1e-6;  // fixed, no file contains it

/// The state of a pass that every block reads.
struct VisionPass {
  at::Tensor cos, sin;                                     // [1, s, e / 2]
  std::shared_ptr<const ops::PackedSequences> of_windows;  // null: all blocks attend to the image
  std::shared_ptr<const ops::PackedSequences> of_images;
};

/// The convolution over a patch and two frames. Both frames of a photograph are equal, so their
/// kernels are added.
class PatchProjectionImpl : public torch::nn::Module {
 public:
  PatchProjectionImpl(const VisionConfig& config, at::TensorOptions options);
  at::Tensor forward(const at::Tensor& patches);  // [s, c * patch^2] -> [s, d]
  at::Tensor weight, bias;                        // [d, c, 2, patch, patch]; bias if config.deep()
};
TORCH_MODULE(PatchProjection);

class PatchEmbedImpl : public torch::nn::Module {
 public:
  PatchEmbedImpl(const VisionConfig& config, at::TensorOptions options);
  at::Tensor forward(const at::Tensor& patches);
  PatchProjection proj{nullptr};
};
TORCH_MODULE(PatchEmbed);

class VisionAttentionImpl : public torch::nn::Module {
 public:
  VisionAttentionImpl(const VisionConfig& config, at::TensorOptions options);
  at::Tensor forward(const at::Tensor& x_sd, const VisionPass& pass,
                     const ops::PackedSequences& sequences);
  layers::Linear qkv{nullptr}, proj{nullptr};

 private:
  int64_t heads_;
};
TORCH_MODULE(VisionAttention);

/// SwiGLU in Qwen2.5-VL, else two linear layers; the other members are null.
class VisionMlpImpl : public torch::nn::Module {
 public:
  VisionMlpImpl(const VisionConfig& config, at::TensorOptions options);
  at::Tensor forward(const at::Tensor& x_sd);
  layers::Linear gate_proj{nullptr}, up_proj{nullptr}, down_proj{nullptr};
  layers::Linear linear_fc1{nullptr}, linear_fc2{nullptr};  // "fc1" and "fc2" in Qwen2-VL

 private:
  std::string activation_;
  const char *first_, *second_;  // names of the two layers
};
TORCH_MODULE(VisionMlp);

class VisionBlockImpl : public torch::nn::Module {
 public:
  VisionBlockImpl(const VisionConfig& config, at::TensorOptions options);
  at::Tensor forward(const at::Tensor& x_sd, const VisionPass& pass,
                     const ops::PackedSequences& sequences);
  layers::EitherNorm norm1, norm2;  // an RMSNorm in Qwen2.5-VL
  VisionAttention attn{nullptr};
  VisionMlp mlp{nullptr};
};
TORCH_MODULE(VisionBlock);

class VisionTowerImpl : public torch::nn::Module {
 public:
  VisionTowerImpl(const VisionConfig& config, at::TensorOptions options);
  /// Maps the pixels of all images, each [c, height, width] after the other, to the states of the
  /// last block [s, d] in the order of grid.h, followed by those after config.deep_blocks.
  std::vector<at::Tensor> forward(const at::Tensor& pixels, const std::vector<Grid>& grids);
  PatchEmbed patch_embed{nullptr};
  layers::Embedding pos_embed{nullptr};  // if config.deep()
  layers::Stack<VisionBlock> blocks;

 private:
  VisionConfig config_;
};
TORCH_MODULE(VisionTower);

}  // namespace lft::qwen_vl
