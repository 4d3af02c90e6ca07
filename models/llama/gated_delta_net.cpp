#include "models/llama/gated_delta_net.h"

#include <ATen/ATen.h>

#include "models/base/call.h"
#include "models/base/dims.h"
#include "models/layers/linear_group.h"
#include "models/ops/recurrent/causal_conv.h"
#include "models/ops/recurrent/gated_delta.h"
#include "models/ops/recurrent/gated_norm.h"

namespace lft::llama {
namespace {

at::Tensor of_rows(const at::Tensor& x, const at::Tensor& rows_k) {
  return rows_k.defined() ? x.index_select(0, rows_k) : x;
}

}  // namespace

CausalConvImpl::CausalConvImpl(const DeltaConfig& config, at::TensorOptions options) {
  weight = register_parameter("weight", at::empty({config.channels(), 1, config.kernel}, options),
                              /*requires_grad=*/false);
}

at::Tensor CausalConvImpl::forward(const at::Tensor& x_nc, const ops::PackedSequences& sequences,
                                   at::Tensor* inputs_scw) {
  const bool cached = inputs_scw != nullptr;
  const ops::ConvResult result = ops::causal_conv_silu(x_nc, weight.squeeze(1), sequences,
                                                       cached ? *inputs_scw : at::Tensor(), cached);
  if (cached) *inputs_scw = result.last_scw1;
  return result.out_tc;
}

GatedRmsNormImpl::GatedRmsNormImpl(int64_t size, double eps, at::TensorOptions options)
    : eps_(eps) {
  weight = register_parameter("weight", at::empty({size}, options), /*requires_grad=*/false);
}

at::Tensor GatedRmsNormImpl::forward(const at::Tensor& x, const at::Tensor& gate) {
  return ops::gated_rms_norm(x, gate, weight, eps_);
}

GatedDeltaNetImpl::GatedDeltaNetImpl(const LlamaConfig& config, at::TensorOptions options,
                                     at::TensorOptions linear_options)
    : config_(config.delta) {
  const auto linear = [&](const char* name, int64_t in, int64_t out) {
    return register_module(name, layers::Linear(in, out, false, linear_options));
  };
  in_proj_qkv = linear("in_proj_qkv", config.hidden, config_.channels());
  in_proj_z = linear("in_proj_z", config.hidden, config_.values());
  in_proj_b = linear("in_proj_b", config.hidden, config_.value_heads);
  in_proj_a = linear("in_proj_a", config.hidden, config_.value_heads);
  conv1d = register_module("conv1d", CausalConv(config_, options));
  dt_bias = register_parameter("dt_bias", at::empty({config_.value_heads}, options),
                               /*requires_grad=*/false);
  A_log = register_parameter("A_log", at::empty({config_.value_heads}, options),
                             /*requires_grad=*/false);
  norm = register_module("norm", GatedRmsNorm(config_.value_dim, config.rms_norm_eps, options));
  out_proj = linear("out_proj", config_.values(), config.hidden);
}

at::Tensor GatedDeltaNetImpl::forward(const ops::Normed& input, const RecurrentPass& pass,
                                      int64_t layer, const at::Tensor& rows_k) {
  const at::Tensor& x_btd = input.y;
  expect_dims(x_btd, "x", {{"b"}, {"t"}, {"d", in_proj_qkv->weight.size(1)}});
  const int64_t b = x_btd.size(0), t = x_btd.size(1), heads = config_.value_heads;
  const layers::LinearGroup group({in_proj_qkv, in_proj_z, in_proj_b, in_proj_a}, input);
  const auto project = [&](const char* name, size_t number, int64_t width) {
    const at::Tensor y = call(name, group[number], x_btd);
    expect_dims(y, name, {{"b", b}, {"t", t}, {"out", width}});
    return y.flatten(0, 1);
  };
  const auto of_sequences = [&](const at::Tensor& x) {
    return pass.shared ? ops::with_shared(x, *pass.shared) : of_rows(x, pass.places_n);
  };
  const auto held = [&](std::vector<at::Tensor> KvCache::*layers) {
    return pass.cache != nullptr ? &(pass.cache->*layers)[static_cast<size_t>(layer)] : nullptr;
  };
  const at::Tensor qkv = of_sequences(project("in_proj_qkv", 0, config_.channels())),
                   gate = project("in_proj_z", 1, config_.values()),
                   beta = of_sequences(project("in_proj_b", 2, heads)).sigmoid(),
                   step = of_sequences(project("in_proj_a", 3, heads)).to(at::kFloat) + dt_bias;
  const std::vector<at::Tensor> parts =
      call("conv1d", conv1d, qkv, *pass.sequences, held(&KvCache::inputs))
          .split_with_sizes({config_.keys(), config_.keys(), config_.values()}, 1);
  const auto keys_of = [&](const at::Tensor& x) {
    return x.unflatten(1, {config_.key_heads, config_.key_dim});
  };
  at::Tensor* const state = held(&KvCache::states);
  const ops::DeltaResult result =
      ops::gated_delta_rule({.q_thd = keys_of(parts[0]),
                             .k_thd = keys_of(parts[1]),
                             .v_tne = parts[2].unflatten(1, {heads, config_.value_dim}),
                             .g_tn = -A_log.to(at::kFloat).exp() * at::softplus(step),
                             .beta_tn = beta},
                            *pass.sequences, state != nullptr ? *state : at::Tensor(),
                            /*final_state=*/state != nullptr);
  if (state != nullptr) *state = result.state_snde;
  at::Tensor mixed =
      pass.shared ? ops::without_shared(result.out_tne, *pass.shared) : result.out_tne;
  if (pass.places_n.defined())
    mixed = at::zeros({b * t, heads, config_.value_dim}, mixed.options())
                .index_copy(0, pass.places_n, mixed);
  mixed = call("norm", norm, of_rows(mixed, rows_k),
               of_rows(gate, rows_k).unflatten(1, {heads, config_.value_dim}))
              .flatten(1);
  return call("out_proj", out_proj, rows_k.defined() ? mixed : mixed.view({b, t, -1}));
}

}  // namespace lft::llama
