#include "models/llama/attention.h"

#include <ATen/ATen.h>

#include <vector>

#include "models/base/call.h"
#include "models/base/dims.h"
#include "models/layers/linear_group.h"
#include "models/ops/attention/attention.h"
#include "models/ops/attention/cache_attention.h"

namespace lft::llama {
namespace {

/// [b, t, kv, e] -> [b, t, kv * repeat, e]: head h of the result is key head h / repeat.
at::Tensor repeat_heads(const at::Tensor& x, int64_t repeat) {
  if (repeat == 1) return x;
  return x.unsqueeze(3).expand({-1, -1, -1, repeat, -1}).flatten(2, 3);
}

}  // namespace

LlamaAttentionImpl::LlamaAttentionImpl(const LlamaConfig& config, at::TensorOptions options,
                                       at::TensorOptions linear_options)
    : heads_(config.heads),
      kv_heads_(config.kv_heads),
      head_dim_(config.head_dim),
      gated_(config.gated_attention) {
  const bool bias = config.has_qkv_bias();
  q_proj = register_module(
      "q_proj",
      layers::Linear(config.hidden, (gated_ ? 2 : 1) * heads_ * head_dim_, bias, linear_options));
  k_proj = register_module(
      "k_proj", layers::Linear(config.hidden, kv_heads_ * head_dim_, bias, linear_options));
  v_proj = register_module(
      "v_proj", layers::Linear(config.hidden, kv_heads_ * head_dim_, bias, linear_options));
  o_proj = register_module("o_proj", layers::Linear(heads_ * head_dim_, config.hidden,
                                                    config.attention_bias, linear_options));
  if (!config.qk_norm) return;
  const auto norm = [&](const char* name) {
    return register_module(
        name, layers::RmsNorm(head_dim_, config.rms_norm_eps, options, config.norms_add_one));
  };
  q_norm = norm("q_norm");
  k_norm = norm("k_norm");
}

at::Tensor LlamaAttentionImpl::forward(const ops::Normed& input, const LlamaPass& pass,
                                       int64_t layer, const at::Tensor& rows_k) {
  const at::Tensor& x_btd = input.y;
  expect_dims(x_btd, "x", {{"b"}, {"t"}, {"d", q_proj->weight.size(1)}});
  const int64_t b = x_btd.size(0), t = x_btd.size(1);
  const auto heads_of = [&](const char* name, const at::Tensor& x, int64_t heads) {
    expect_dims(x, name, {{"b", b}, {"t", t}, {"h*e", heads * head_dim_}});
    return x.view({b, t, heads, head_dim_});
  };
  const layers::LinearGroup group({q_proj, k_proj, v_proj}, input);
  at::Tensor q_bthe = heads_of("the output of q_proj", call("q_proj", group[0], x_btd),
                               gated_ ? 2 * heads_ : heads_);
  at::Tensor gate;
  if (gated_) {
    const std::vector<at::Tensor> parts = q_bthe.unflatten(2, {heads_, 2}).unbind(3);
    q_bthe = parts[0].contiguous();
    gate = parts[1].flatten(2);
  }
  if (q_norm) q_bthe = call("q_norm", q_norm, q_bthe);
  q_bthe = rotated(q_bthe, pass.queries.cos.defined() ? pass.queries : pass.rotation);
  at::Tensor k_bthe = heads_of("the output of k_proj", call("k_proj", group[1], x_btd), kv_heads_);
  if (k_norm) k_bthe = call("k_norm", k_norm, k_bthe);
  k_bthe = rotated(k_bthe, pass.rotation);
  const at::Tensor v_bthe =
      heads_of("the output of v_proj", call("v_proj", group[2], x_btd), kv_heads_);
  const auto project = [&](const at::Tensor& mixed_btd) {
    at::Tensor kept = keep_rows(mixed_btd, rows_k);
    if (gate.defined()) kept = kept * keep_rows(gate, rows_k).sigmoid();
    return call("o_proj", o_proj, kept);
  };
  if (pass.packed) {
    const at::Tensor mixed =
        ops::packed_attention(q_bthe.squeeze(0), k_bthe.squeeze(0), v_bthe.squeeze(0), *pass.packed,
                              /*causal=*/true, pass.packed_masks)
            .unsqueeze(0);
    return project(mixed.flatten(2));
  }
  if (pass.cache != nullptr && pass.cache_mask.defined())
    return project(attend_to_cache(q_bthe, k_bthe, v_bthe, pass, layer));
  if (pass.cache != nullptr) {
    store_first(k_bthe, &pass.cache->keys[static_cast<size_t>(layer)]);
    store_first(v_bthe, &pass.cache->values[static_cast<size_t>(layer)]);
  }
  const int64_t repeat = heads_ / kv_heads_;
  const at::Tensor mixed = ops::attention(
      q_bthe.transpose(1, 2), repeat_heads(k_bthe, repeat).transpose(1, 2),
      repeat_heads(v_bthe, repeat).transpose(1, 2), pass.mask, /*causal=*/!pass.mask.defined());
  return project(mixed.transpose(1, 2).flatten(2));
}

at::Tensor LlamaAttentionImpl::attend_to_cache(const at::Tensor& q_bthe, const at::Tensor& k_bthe,
                                               const at::Tensor& v_bthe, const LlamaPass& pass,
                                               int64_t layer) const {
  const int64_t b = q_bthe.size(0);
  const auto index = static_cast<size_t>(layer);
  const at::Tensor keys = store_next(k_bthe, pass.cache_places, &pass.cache->keys[index]),
                   values = store_next(v_bthe, pass.cache_places, &pass.cache->values[index]);
  // The heads that share a key head see the same keys, as if they were further queries of one head.
  const at::Tensor mixed = ops::cache_attention(
      q_bthe.view({b, kv_heads_, heads_ / kv_heads_, head_dim_}), keys, values, pass.cache_mask);
  return mixed.reshape({b, 1, heads_ * head_dim_});
}

}  // namespace lft::llama
