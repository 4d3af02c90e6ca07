#include "models/internvl/vision.h"

#include <ATen/ATen.h>

#include "models/base/call.h"
#include "models/base/dims.h"
#include "models/layers/recompute.h"
#include "models/ops/attention/attention.h"

namespace lft::internvl {
namespace {

constexpr double kHeadNormEps = 1e-6;  // fixed, no file contains it

/// Adds a block's output to the residual stream; no broadcasting but that of the scale.
at::Tensor add_to(const char* name, const at::Tensor& stream, const at::Tensor& added,
                  const at::Tensor& scale_d, Dim d) {
  expect_dims_like(added, name, stream, d);
  return stream + scale_d * added;
}

}  // namespace

VisionAttentionImpl::VisionAttentionImpl(const InternVlFields& config, at::TensorOptions options)
    : heads_(config.vision.heads) {
  const int64_t d = config.vision.hidden;
  q_proj = register_module("q_proj", layers::Linear(d, d, config.qkv_bias, options));
  k_proj = register_module("k_proj", layers::Linear(d, d, config.qkv_bias, options));
  v_proj = register_module("v_proj", layers::Linear(d, d, config.qkv_bias, options));
  projection_layer = register_module("projection_layer", layers::Linear(d, d, true, options));
  if (!config.qk_norm) return;
  q_norm = register_module("q_norm", layers::RmsNorm(d, kHeadNormEps, options));
  k_norm = register_module("k_norm", layers::RmsNorm(d, kHeadNormEps, options));
}

at::Tensor VisionAttentionImpl::forward(const at::Tensor& x_nsd) {
  const int64_t n = x_nsd.size(0), s = x_nsd.size(1), d = projection_layer->weight.size(0);
  expect_dims(x_nsd, "x", {{"n"}, {"s"}, {"d", d}});
  const auto heads_first = [&](const at::Tensor& x) {
    expect_dims(x, "a projection's output", {{"n", n}, {"s", s}, {"h*e", d}});
    return x.view({n, s, heads_, -1}).transpose(1, 2);
  };
  at::Tensor q = call("q_proj", q_proj, x_nsd), k = call("k_proj", k_proj, x_nsd);
  const at::Tensor v = call("v_proj", v_proj, x_nsd);
  if (q_norm) {
    q = call("q_norm", q_norm, q).to(v.scalar_type());
    k = call("k_norm", k_norm, k).to(v.scalar_type());
  }
  const at::Tensor mixed = ops::attention(heads_first(q), heads_first(k), heads_first(v),
                                          /*mask=*/at::Tensor(), /*causal=*/false);
  return call("projection_layer", projection_layer, mixed.transpose(1, 2).flatten(2));
}

VisionLayerImpl::VisionLayerImpl(const InternVlFields& config, at::TensorOptions options) {
  const int64_t d = config.vision.hidden;
  const double eps = config.vision.layer_norm_eps;
  lambda_1 = register_parameter("lambda_1", at::empty({d}, options), /*requires_grad=*/false);
  lambda_2 = register_parameter("lambda_2", at::empty({d}, options), /*requires_grad=*/false);
  attention = register_module("attention", VisionAttention(config, options));
  mlp = register_module("mlp", clip::ClipMlp(config.vision, options));
  layernorm_before.make(*this, "layernorm_before", config.rms_norms, d, eps, options);
  layernorm_after.make(*this, "layernorm_after", config.rms_norms, d, eps, options);
}

at::Tensor VisionLayerImpl::forward(const at::Tensor& x_nsd) {
  const Dim d = {"d", lambda_1.size(0)};
  expect_dims(x_nsd, "x", {{"n"}, {"s"}, d});
  const at::Tensor middle = add_to(
      "the output of attention", x_nsd,
      call("attention", attention, layernorm_before.run("layernorm_before", x_nsd)), lambda_1, d);
  return add_to("the output of mlp", middle,
                call("mlp", mlp, layernorm_after.run("layernorm_after", middle)), lambda_2, d);
}

VisionEncoderImpl::VisionEncoderImpl(const InternVlFields& config, at::TensorOptions options) {
  layer = register_module("layer", std::make_shared<layers::StackImpl<VisionLayer>>());
  for (int64_t i = 0; i < config.vision.layers; ++i) layer->push_back(VisionLayer(config, options));
}

at::Tensor VisionEncoderImpl::forward(const at::Tensor& x_nsd) {
  at::Tensor x = x_nsd;
  for (int64_t i = 0; i < layer->size(); ++i) {
    const VisionLayer& block = (*layer)[i];
    const auto run = [block, i](const at::Tensor& input) {
      return call_indexed("layer", i, block, input);
    };
    x = layers::recomputes(i) ? layers::recompute(*block, x, run) : run(x);
  }
  return x;
}

PatchEmbeddingsImpl::PatchEmbeddingsImpl(const clip::ClipConfig& config,
                                         at::TensorOptions options) {
  projection = register_module("projection", siglip::SiglipPatchEmbedding(config, options));
}

at::Tensor PatchEmbeddingsImpl::forward(const at::Tensor& pixels_nchw) {
  return call("projection", projection, pixels_nchw);
}

EmbeddingsImpl::EmbeddingsImpl(const clip::ClipConfig& config, at::TensorOptions options) {
  const int64_t d = config.hidden, positions = config.grid() * config.grid() + 1;
  cls_token = register_parameter("cls_token", at::empty({1, 1, d}, options),
                                 /*requires_grad=*/false);
  position_embeddings = register_parameter(
      "position_embeddings", at::empty({1, positions, d}, options), /*requires_grad=*/false);
  patch_embeddings = register_module("patch_embeddings", PatchEmbeddings(config, options));
}

at::Tensor EmbeddingsImpl::forward(const at::Tensor& pixels_nchw) {
  const at::Tensor patches = call("patch_embeddings", patch_embeddings, pixels_nchw);
  expect_dims(patches, "patches",
              {{"n", pixels_nchw.size(0)},
               {"p", position_embeddings.size(1) - 1},
               {"d", position_embeddings.size(2)}});
  const at::Tensor first = cls_token.expand({patches.size(0), 1, -1});
  return at::cat({first.to(at::promote_types(first.scalar_type(), patches.scalar_type())), patches},
                 1) +
         position_embeddings;
}

VisionTowerImpl::VisionTowerImpl(const InternVlFields& config, at::TensorOptions options) {
  embeddings = register_module("embeddings", Embeddings(config.vision, options));
  encoder = register_module("encoder", VisionEncoder(config, options));
}

at::Tensor VisionTowerImpl::forward(const at::Tensor& pixels_nchw) {
  const at::Tensor states = call("encoder", encoder, call("embeddings", embeddings, pixels_nchw));
  return states.narrow(1, 1, states.size(1) - 1);
}

}  // namespace lft::internvl
