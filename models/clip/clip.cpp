#include "models/clip/clip.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "models/base/call.h"
#include "models/base/dims.h"
#include "models/layers/recompute.h"
#include "models/ops/attention/attention.h"
#include "models/ops/elementwise/activation.h"
#include "models/ops/linear/linear.h"

namespace lft::clip {
namespace {

/// Adds a block's output to the residual stream; no broadcasting.
at::Tensor add_to(const char* name, const at::Tensor& stream, const at::Tensor& added, Dim d) {
  expect_dims_like(added, name, stream, d);
  return stream + added;
}

}  // namespace

ClipPatchEmbeddingImpl::ClipPatchEmbeddingImpl(const ClipConfig& config,
                                               at::TensorOptions options) {
  const std::vector<int64_t> shape = {config.hidden, config.channels, config.patch_size,
                                      config.patch_size};
  weight = register_parameter("weight", at::empty(shape, options), /*requires_grad=*/false);
}

at::Tensor ClipPatchEmbeddingImpl::forward(const at::Tensor& pixels_nchw) {
  expect_dims(pixels_nchw, "pixels", {{"n"}, {"c", weight.size(1)}, {"h"}, {"w"}});
  const int64_t images = pixels_nchw.size(0), channels = pixels_nchw.size(1),
                patch = weight.size(2);
  const int64_t rows = pixels_nchw.size(2) / patch, columns = pixels_nchw.size(3) / patch;
  const at::Tensor whole = pixels_nchw.narrow(2, 0, rows * patch)
                               .narrow(3, 0, columns * patch);  // a convolution ignores the rest
  const at::Tensor patches =
      whole.reshape({images, channels, rows, patch, columns, patch}).permute({0, 2, 4, 1, 3, 5});
  return ops::linear(patches.reshape({images, rows * columns, channels * patch * patch}),
                     weight.flatten(1), at::Tensor());
}

ClipEmbeddingsImpl::ClipEmbeddingsImpl(const ClipConfig& config, at::TensorOptions options) {
  class_embedding = register_parameter("class_embedding", at::empty({config.hidden}, options),
                                       /*requires_grad=*/false);
  patch_embedding = register_module("patch_embedding", ClipPatchEmbedding(config, options));
  position_embedding =
      register_module("position_embedding",
                      layers::Embedding(config.grid() * config.grid() + 1, config.hidden, options));
}

at::Tensor ClipEmbeddingsImpl::forward(const at::Tensor& pixels_nchw) {
  const at::Tensor patches = call("patch_embedding", patch_embedding, pixels_nchw);
  const at::Tensor& positions = position_embedding->weight;
  expect_dims(patches, "patches",
              {{"n", pixels_nchw.size(0)}, {"p", positions.size(0) - 1}, {"d", positions.size(1)}});
  const at::Tensor first = class_embedding.expand({patches.size(0), 1, -1});
  return at::cat({first.to(at::promote_types(first.scalar_type(), patches.scalar_type())), patches},
                 1) +
         position_embedding->weight;
}

ClipAttentionImpl::ClipAttentionImpl(const ClipConfig& config, at::TensorOptions options)
    : heads_(config.heads) {
  const int64_t d = config.hidden;
  k_proj = register_module("k_proj", layers::Linear(d, d, true, options));
  v_proj = register_module("v_proj", layers::Linear(d, d, true, options));
  q_proj = register_module("q_proj", layers::Linear(d, d, true, options));
  out_proj = register_module("out_proj", layers::Linear(d, d, true, options));
}

at::Tensor ClipAttentionImpl::forward(const at::Tensor& x_nsd) {
  expect_dims(x_nsd, "x", {{"n"}, {"s"}, {"d", q_proj->weight.size(1)}});
  const int64_t width = q_proj->weight.size(0);  // heads * head size
  const auto heads_first = [&](const at::Tensor& x) {
    expect_dims(x, "a projection's output",
                {{"n", x_nsd.size(0)}, {"s", x_nsd.size(1)}, {"h*e", width}});
    return x.view({x.size(0), x.size(1), heads_, -1}).transpose(1, 2);
  };
  const at::Tensor q = heads_first(call("q_proj", q_proj, x_nsd)),
                   k = heads_first(call("k_proj", k_proj, x_nsd));
  const at::Tensor v = heads_first(call("v_proj", v_proj, x_nsd));
  return call(
      "out_proj", out_proj,
      ops::attention(q, k, v, /*mask=*/at::Tensor(), /*causal=*/false).transpose(1, 2).flatten(2));
}

ClipMlpImpl::ClipMlpImpl(const ClipConfig& config, at::TensorOptions options)
    : activation_(config.activation) {
  fc1 = register_module("fc1", layers::Linear(config.hidden, config.intermediate, true, options));
  fc2 = register_module("fc2", layers::Linear(config.intermediate, config.hidden, true, options));
}

at::Tensor ClipMlpImpl::forward(const at::Tensor& x_nsd) {
  expect_dims(x_nsd, "x", {{"n"}, {"s"}, {"d", fc1->weight.size(1)}});
  return call("fc2", fc2, ops::activation(activation_, call("fc1", fc1, x_nsd)));
}

ClipLayerImpl::ClipLayerImpl(const ClipConfig& config, at::TensorOptions options) {
  self_attn = register_module("self_attn", ClipAttention(config, options));
  layer_norm1 = register_module("layer_norm1",
                                layers::LayerNorm(config.hidden, config.layer_norm_eps, options));
  mlp = register_module("mlp", ClipMlp(config, options));
  layer_norm2 = register_module("layer_norm2",
                                layers::LayerNorm(config.hidden, config.layer_norm_eps, options));
}

at::Tensor ClipLayerImpl::forward(const at::Tensor& x_nsd) {
  const Dim d = {"d", layer_norm1->weight.size(0)};
  expect_dims(x_nsd, "x", {{"n"}, {"s"}, d});
  const at::Tensor middle =
      add_to("the output of self_attn", x_nsd,
             call("self_attn", self_attn, call("layer_norm1", layer_norm1, x_nsd)), d);
  return add_to("the output of mlp", middle,
                call("mlp", mlp, call("layer_norm2", layer_norm2, middle)), d);
}

ClipEncoderImpl::ClipEncoderImpl(const ClipConfig& config, at::TensorOptions options) {
  layers = register_module("layers", std::make_shared<layers::StackImpl<ClipLayer>>());
  for (int64_t i = 0; i < config.layers; ++i) layers->push_back(ClipLayer(config, options));
}

std::vector<at::Tensor> ClipEncoderImpl::forward(const at::Tensor& x_nsd,
                                                 const std::vector<int64_t>& feature_layers) {
  const int64_t last =
      feature_layers.empty() ? 0 : *std::max_element(feature_layers.begin(), feature_layers.end());
  std::vector<at::Tensor> features(feature_layers.size());
  at::Tensor x = x_nsd;
  for (int64_t i = 0;; ++i) {
    for (size_t f = 0; f < features.size(); ++f) {
      if (feature_layers[f] == i) features[f] = x;
    }
    if (i == last) return features;
    const ClipLayer& layer = (*layers)[i];
    const auto run = [layer, i](const at::Tensor& input) {
      return call_indexed("layers", i, layer, input);
    };
    x = layers::recomputes(i) ? layers::recompute(*layer, x, run) : run(x);
  }
}

ClipTransformerImpl::ClipTransformerImpl(const ClipConfig& config, at::TensorOptions options) {
  embeddings = register_module("embeddings", ClipEmbeddings(config, options));
  pre_layrnorm = register_module("pre_layrnorm",
                                 layers::LayerNorm(config.hidden, config.layer_norm_eps, options));
  encoder = register_module("encoder", ClipEncoder(config, options));
  post_layernorm = register_module(
      "post_layernorm", layers::LayerNorm(config.hidden, config.layer_norm_eps, options));
}

std::vector<at::Tensor> ClipTransformerImpl::forward(const at::Tensor& pixels_nchw,
                                                     const std::vector<int64_t>& feature_layers) {
  const at::Tensor x = call("embeddings", embeddings, pixels_nchw);
  return call("encoder", encoder, call("pre_layrnorm", pre_layrnorm, x), feature_layers);
}

ClipVisionImpl::ClipVisionImpl(const ClipConfig& config, at::TensorOptions options)
    : config_(config) {
  vision_model = register_module("vision_model", ClipTransformer(config, options));
}

std::vector<at::Tensor> ClipVisionImpl::forward(const at::Tensor& pixels_nchw,
                                                const std::vector<int64_t>& feature_layers) {
  std::vector<int64_t> from_start = feature_layers;
  for (int64_t& layer : from_start) layer += layer < 0 ? config_.layers + 1 : 0;
  return call("vision_model", vision_model, pixels_nchw, from_start);
}

}  // namespace lft::clip
