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

const BlockNames& block_names(Layout layout) {
  static constexpr BlockNames kTransformers = {.attention = "attention",
                                               .output = "projection_layer",
                                               .before = "layernorm_before",
                                               .after = "layernorm_after",
                                               .scale_1 = "lambda_1",
                                               .scale_2 = "lambda_2"};
  static constexpr BlockNames kOriginal = {.attention = "attn",
                                           .output = "proj",
                                           .before = "norm1",
                                           .after = "norm2",
                                           .scale_1 = "ls1",
                                           .scale_2 = "ls2"};
  return layout == Layout::kOriginal ? kOriginal : kTransformers;
}

VisionAttentionImpl::VisionAttentionImpl(const InternVlFields& config, at::TensorOptions options)
    : heads_(config.vision.heads), names_(block_names(config.layout)) {
  const int64_t d = config.vision.hidden;
  const auto add = [&](const char* name, int64_t out) {
    return register_module(name, layers::Linear(d, out, config.qkv_bias, options));
  };
  if (config.layout == Layout::kOriginal) {
    qkv = add("qkv", 3 * d);
  } else {
    q_proj = add("q_proj", d);
    k_proj = add("k_proj", d);
    v_proj = add("v_proj", d);
  }
  output = register_module(names_.output, layers::Linear(d, d, true, options));
  if (!config.qk_norm) return;
  q_norm = register_module("q_norm", layers::RmsNorm(d, kHeadNormEps, options));
  k_norm = register_module("k_norm", layers::RmsNorm(d, kHeadNormEps, options));
}

at::Tensor VisionAttentionImpl::forward(const at::Tensor& x_nsd) {
  const int64_t n = x_nsd.size(0), s = x_nsd.size(1), d = output->weight.size(0);
  expect_dims(x_nsd, "x", {{"n"}, {"s"}, {"d", d}});
  const auto heads_first = [&](const at::Tensor& x) {
    expect_dims(x, "a projection's output", {{"n", n}, {"s", s}, {"h*e", d}});
    return x.view({n, s, heads_, -1}).transpose(1, 2);
  };
  at::Tensor q, k, v;
  if (qkv) {
    const at::Tensor all = call("qkv", qkv, x_nsd);
    expect_dims(all, "the output of qkv", {{"n", n}, {"s", s}, {"3*h*e", 3 * d}});
    q = all.narrow(2, 0, d), k = all.narrow(2, d, d), v = all.narrow(2, 2 * d, d);
  } else {
    q = call("q_proj", q_proj, x_nsd), k = call("k_proj", k_proj, x_nsd);
    v = call("v_proj", v_proj, x_nsd);
  }
  if (q_norm) {
    q = call("q_norm", q_norm, q).to(v.scalar_type());
    k = call("k_norm", k_norm, k).to(v.scalar_type());
  }
  const at::Tensor mixed = ops::attention(heads_first(q), heads_first(k), heads_first(v),
                                          /*mask=*/at::Tensor(), /*causal=*/false);
  return call(names_.output, output, mixed.transpose(1, 2).flatten(2));
}

VisionLayerImpl::VisionLayerImpl(const InternVlFields& config, at::TensorOptions options)
    : names_(block_names(config.layout)) {
  const int64_t d = config.vision.hidden;
  const double eps = config.vision.layer_norm_eps;
  scale_1 = register_parameter(names_.scale_1, at::empty({d}, options), /*requires_grad=*/false);
  scale_2 = register_parameter(names_.scale_2, at::empty({d}, options), /*requires_grad=*/false);
  attention = register_module(names_.attention, VisionAttention(config, options));
  mlp = register_module("mlp", clip::ClipMlp(config.vision, options));
  before.make(*this, names_.before, config.rms_norms, d, eps, options);
  after.make(*this, names_.after, config.rms_norms, d, eps, options);
}

at::Tensor VisionLayerImpl::forward(const at::Tensor& x_nsd) {
  const Dim d = {"d", scale_1.size(0)};
  expect_dims(x_nsd, "x", {{"n"}, {"s"}, d});
  const at::Tensor middle =
      add_to("the output of attention", x_nsd,
             call(names_.attention, attention, before.run(names_.before, x_nsd)), scale_1, d);
  return add_to("the output of mlp", middle, call("mlp", mlp, after.run(names_.after, middle)),
                scale_2, d);
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
