// CLIP's vision transformer (Radford et al. 2021) as in LLaVA: hidden states of selected layers, no
// pooling, no text tower. Shape letters: n images, s positions (CLS first), d hidden, c channels, h
// w pixels.
#pragma once
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <vector>

#include "models/clip/config.h"
#include "models/layers/embedding.h"
#include "models/layers/linear.h"
#include "models/layers/norms.h"
#include "models/layers/stack.h"

namespace lft::clip {

/// The convolution with stride = kernel = patch, as one matrix product over flattened patches. No
/// bias.
class ClipPatchEmbeddingImpl : public torch::nn::Module {
 public:
  ClipPatchEmbeddingImpl(const ClipConfig& config, at::TensorOptions options);
  at::Tensor forward(const at::Tensor& pixels_nchw);  // [n, grid * grid, d]
  at::Tensor weight;                                  // [d, c, patch, patch]
};
TORCH_MODULE(ClipPatchEmbedding);

class ClipEmbeddingsImpl : public torch::nn::Module {
 public:
  ClipEmbeddingsImpl(const ClipConfig& config, at::TensorOptions options);
  at::Tensor forward(const at::Tensor& pixels_nchw);  // [n, 1 + grid * grid, d]
  at::Tensor class_embedding;
  ClipPatchEmbedding patch_embedding{nullptr};
  layers::Embedding position_embedding{nullptr};
};
TORCH_MODULE(ClipEmbeddings);

class ClipAttentionImpl : public torch::nn::Module {
 public:
  ClipAttentionImpl(const ClipConfig& config, at::TensorOptions options);
  at::Tensor forward(const at::Tensor& x_nsd);
  layers::Linear q_proj{nullptr}, k_proj{nullptr}, v_proj{nullptr}, out_proj{nullptr};

 private:
  int64_t heads_;
};
TORCH_MODULE(ClipAttention);

class ClipMlpImpl : public torch::nn::Module {
 public:
  ClipMlpImpl(const ClipConfig& config, at::TensorOptions options);
  at::Tensor forward(const at::Tensor& x_nsd);
  layers::Linear fc1{nullptr}, fc2{nullptr};

 private:
  std::string activation_;
};
TORCH_MODULE(ClipMlp);

class ClipLayerImpl : public torch::nn::Module {
 public:
  ClipLayerImpl(const ClipConfig& config, at::TensorOptions options);
  at::Tensor forward(const at::Tensor& x_nsd);
  layers::LayerNorm layer_norm1{nullptr}, layer_norm2{nullptr};
  ClipAttention self_attn{nullptr};
  ClipMlp mlp{nullptr};
};
TORCH_MODULE(ClipLayer);

class ClipEncoderImpl : public torch::nn::Module {
 public:
  ClipEncoderImpl(const ClipConfig& config, at::TensorOptions options);
  /// The states before layer i for every i in `feature_layers` (0 is the input, config.layers the
  /// end); runs only the layers that they need.
  std::vector<at::Tensor> forward(const at::Tensor& x_nsd,
                                  const std::vector<int64_t>& feature_layers);
  layers::Stack<ClipLayer> layers;
};
TORCH_MODULE(ClipEncoder);

class ClipTransformerImpl : public torch::nn::Module {
 public:
  ClipTransformerImpl(const ClipConfig& config, at::TensorOptions options);
  std::vector<at::Tensor> forward(const at::Tensor& pixels_nchw,
                                  const std::vector<int64_t>& feature_layers);
  ClipEmbeddings embeddings{nullptr};
  layers::LayerNorm pre_layrnorm{nullptr};  // spelled like this in every checkpoint
  ClipEncoder encoder{nullptr};
  layers::LayerNorm post_layernorm{
      nullptr};  // feeds CLIP's pooled output, which LLaVA does not use
};
TORCH_MODULE(ClipTransformer);

class ClipVisionImpl : public torch::nn::Module {
 public:
  ClipVisionImpl(const ClipConfig& config, at::TensorOptions options);
  /// `feature_layers` as in transformers' hidden_states: 0 is the embeddings, negative counts from
  /// the last layer's output (-1).
  std::vector<at::Tensor> forward(const at::Tensor& pixels_nchw,
                                  const std::vector<int64_t>& feature_layers);
  ClipTransformer vision_model{nullptr};

 private:
  ClipConfig config_;
};
TORCH_MODULE(ClipVision);

}  // namespace lft::clip
