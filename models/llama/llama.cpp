#include "models/llama/llama.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "models/base/call.h"
#include "models/base/dims.h"
#include "models/layers/linear_group.h"
#include "models/layers/recompute.h"
#include "models/ops/attention/attention.h"
#include "models/ops/core/copy_to_device.h"
#include "models/ops/elementwise/rope.h"
#include "models/ops/elementwise/token_logprobs.h"
#include "models/ops/linear/linear.h"

namespace lft::llama {
namespace {

/// Rows of a [b, t, d] tensor by flat index: [k, d]; all of it where `rows` is undefined.
at::Tensor keep_rows(const at::Tensor& x_btd, const at::Tensor& rows_k) {
  return rows_k.defined() ? x_btd.flatten(0, 1).index_select(0, rows_k) : x_btd;
}

/// [b, t, kv, e] -> [b, t, kv * repeat, e]: head h of the result is key head h / repeat.
at::Tensor repeat_heads(const at::Tensor& x, int64_t repeat) {
  if (repeat == 1) return x;
  return x.unsqueeze(3).expand({-1, -1, -1, repeat, -1}).flatten(2, 3);
}

/// Cached keys are attended to in steps of so many. A GPU's attention is planned anew for every
/// length it meets, which takes longer than a token.
constexpr int64_t kKeyStep = 256;
int64_t whole_steps(int64_t keys) { return (keys + kKeyStep - 1) / kKeyStep * kKeyStep; }

/// Of the token that comes next in each row.
std::vector<int64_t> next_positions(const KvCache& cache) {
  std::vector<int64_t> next = cache.lengths;
  for (size_t row = 0; row < cache.offsets.size(); ++row) next[row] += cache.offsets[row];
  return next;
}

void grow(at::Tensor& held, const at::Tensor& like_bhte, int64_t needed) {
  if (held.defined() && held.size(2) >= needed) return;
  const int64_t capacity =
      whole_steps(held.defined() ? std::max(needed, held.size(2) * 2) : needed + 64);
  at::Tensor larger = at::zeros({like_bhte.size(0), like_bhte.size(1), capacity, like_bhte.size(3)},
                                like_bhte.options());
  if (held.defined()) larger.narrow(2, 0, held.size(2)).copy_(held);
  held = larger;
}

/// Writes the new positions and returns what is held up to `seen`: all rows start at 0 in the first
/// call, each at its own length later.
at::Tensor store(at::Tensor& held, const at::Tensor& fresh_bthe,
                 const std::vector<int64_t>& lengths, bool first, int64_t seen) {
  const at::Tensor fresh = fresh_bthe.transpose(1, 2);
  grow(held, fresh, seen);
  if (first) {
    held.narrow(2, 0, fresh.size(2)).copy_(fresh);
  } else {
    for (int64_t b = 0; b < fresh.size(0); ++b)
      held.select(0, b)
          .select(1, lengths[static_cast<size_t>(b)])
          .copy_(fresh.select(0, b).select(1, 0));
  }
  return held.narrow(2, 0, seen);
}

/// The LM head as call() runs it where no graph is built: a weight stored in another dtype is then
/// cast a slice at a time.
class SlicedHead {
 public:
  explicit SlicedHead(const layers::Linear& head) : head_(head) {}
  const torch::nn::Module& operator*() const { return *head_; }
  SlicedHead* operator->() { return this; }
  at::Tensor forward(const at::Tensor& hidden) { return ops::head_logits(hidden, head_->weight); }

 private:
  layers::Linear head_;
};

/// The stream with what layer `layer` is followed by at image positions added, where there is such:
/// of all rows, or of those that the last layer kept.
at::Tensor add_deep(const at::Tensor& x, const DecoderInput& input, int64_t layer,
                    const at::Tensor& rows_k) {
  if (layer >= static_cast<int64_t>(input.deep_kd.size())) return x;
  const at::Tensor deep_kd = input.deep_kd[static_cast<size_t>(layer)].to(x.scalar_type());
  expect_dims(deep_kd, "deep features", {{"k", input.deep_places_k.size(0)}, {"d", x.size(-1)}});
  if (!rows_k.defined())
    return x.flatten(0, 1).index_add(0, input.deep_places_k, deep_kd).view(x.sizes());
  const at::Tensor& embeds_btd = input.embeds_btd;
  const at::Tensor everywhere =
      at::zeros({embeds_btd.size(0) * embeds_btd.size(1), x.size(-1)}, x.options())
          .index_copy(0, input.deep_places_k, deep_kd);
  return x + everywhere.index_select(0, rows_k);
}

/// Which of a position's three numbers turns a pair: int64 [e / 2].
at::Tensor axes_of_pairs(const LlamaConfig& config) {
  const std::vector<int64_t>& section = config.mrope_section;
  std::vector<int64_t> axes(static_cast<size_t>(config.head_dim / 2), 0);
  for (int64_t pair = 0; pair < config.head_dim / 2; ++pair) {
    int64_t& axis = axes[static_cast<size_t>(pair)];
    if (config.mrope_interleaved) {
      axis = pair / 3 < section[static_cast<size_t>(pair % 3)] ? pair % 3 : 0;
    } else {
      axis = pair < section[0] ? 0 : pair < section[0] + section[1] ? 1 : 2;
    }
  }
  return at::tensor(axes, at::kLong);
}

bool builds_graph(const at::Tensor& x, const at::Tensor& weight) {
  return at::GradMode::is_enabled() && (x.requires_grad() || weight.requires_grad());
}

}  // namespace

at::Tensor rope_inverse_frequencies(const LlamaConfig& config) {
  const at::Tensor exponent = at::arange(0, config.head_dim, 2, at::kLong).to(at::kFloat) /
                              static_cast<double>(config.head_dim);
  const at::Tensor inverse = 1.0 / at::pow(at::Scalar(config.rope_theta), exponent);
  const RopeScaling& scaling = config.rope_scaling;
  if (scaling.type == "linear") return inverse / scaling.factor;
  if (scaling.type != "llama3") return inverse;
  const auto context = static_cast<double>(scaling.original_max_positions);
  const at::Tensor wavelength = 2 * M_PI / inverse;
  const at::Tensor smooth = (context / wavelength - scaling.low_freq_factor) /
                            (scaling.high_freq_factor - scaling.low_freq_factor);
  const at::Tensor low = wavelength > context / scaling.low_freq_factor,
                   high = wavelength < context / scaling.high_freq_factor;
  const at::Tensor scaled = at::where(low, inverse / scaling.factor, inverse);
  const at::Tensor smoothed = (1 - smooth) * scaled / scaling.factor + smooth * scaled;
  return at::where(low.logical_or(high), scaled, smoothed);
}

LlamaAttentionImpl::LlamaAttentionImpl(const LlamaConfig& config, at::TensorOptions options,
                                       at::TensorOptions linear_options)
    : heads_(config.heads), kv_heads_(config.kv_heads), head_dim_(config.head_dim) {
  const bool bias = config.has_qkv_bias();
  q_proj = register_module("q_proj",
                           layers::Linear(config.hidden, heads_ * head_dim_, bias, linear_options));
  k_proj = register_module(
      "k_proj", layers::Linear(config.hidden, kv_heads_ * head_dim_, bias, linear_options));
  v_proj = register_module(
      "v_proj", layers::Linear(config.hidden, kv_heads_ * head_dim_, bias, linear_options));
  o_proj = register_module("o_proj", layers::Linear(heads_ * head_dim_, config.hidden,
                                                    config.attention_bias, linear_options));
  if (!config.qk_norm) return;
  q_norm = register_module("q_norm", layers::RmsNorm(head_dim_, config.rms_norm_eps, options));
  k_norm = register_module("k_norm", layers::RmsNorm(head_dim_, config.rms_norm_eps, options));
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
  const auto rotate = [&](const at::Tensor& x_bthe) {
    return ops::rope(x_bthe, pass.rotation.cos, pass.rotation.sin);
  };
  const layers::LinearGroup group({q_proj, k_proj, v_proj}, input);
  at::Tensor q_bthe = heads_of("the output of q_proj", call("q_proj", group[0], x_btd), heads_);
  if (q_norm) q_bthe = call("q_norm", q_norm, q_bthe);
  q_bthe = rotate(q_bthe);
  at::Tensor k_bthe = heads_of("the output of k_proj", call("k_proj", group[1], x_btd), kv_heads_);
  if (k_norm) k_bthe = call("k_norm", k_norm, k_bthe);
  k_bthe = rotate(k_bthe);
  const at::Tensor v_bthe =
      heads_of("the output of v_proj", call("v_proj", group[2], x_btd), kv_heads_);
  if (pass.packed) {
    const at::Tensor mixed =
        ops::packed_attention(q_bthe.squeeze(0), k_bthe.squeeze(0), v_bthe.squeeze(0), *pass.packed)
            .unsqueeze(0);
    return call("o_proj", o_proj, keep_rows(mixed.flatten(2), rows_k));
  }

  const int64_t repeat = heads_ / kv_heads_;
  at::Tensor k_bhse = repeat_heads(k_bthe, repeat).transpose(1, 2),
             v_bhse = repeat_heads(v_bthe, repeat).transpose(1, 2);
  if (pass.cache != nullptr) {
    const bool first = !pass.cache_mask.defined();
    const int64_t seen = first ? t : pass.cache_mask.size(3);
    const auto index = static_cast<size_t>(layer);
    const at::Tensor keys =
        store(pass.cache->keys[index], k_bthe, pass.cache->lengths, first, seen);
    const at::Tensor values =
        store(pass.cache->values[index], v_bthe, pass.cache->lengths, first, seen);
    if (!first) {
      k_bhse = repeat_heads(keys.transpose(1, 2), repeat).transpose(1, 2);
      v_bhse = repeat_heads(values.transpose(1, 2), repeat).transpose(1, 2);
    }
  }
  const at::Tensor mixed = ops::attention(q_bthe.transpose(1, 2), k_bhse, v_bhse, pass.cache_mask,
                                          /*causal=*/!pass.cache_mask.defined());
  return call("o_proj", o_proj, keep_rows(mixed.transpose(1, 2).flatten(2), rows_k));
}

LlamaMlpImpl::LlamaMlpImpl(const LlamaConfig& config, at::TensorOptions linear_options) {
  gate_proj = register_module("gate_proj", layers::Linear(config.hidden, config.intermediate,
                                                          config.mlp_bias, linear_options));
  up_proj = register_module("up_proj", layers::Linear(config.hidden, config.intermediate,
                                                      config.mlp_bias, linear_options));
  down_proj = register_module("down_proj", layers::Linear(config.intermediate, config.hidden,
                                                          config.mlp_bias, linear_options));
}

at::Tensor LlamaMlpImpl::forward(const ops::Normed& input) {
  const at::Tensor& x = input.y;
  expect_last_dim(x, "x", {"d", gate_proj->weight.size(1)});
  const layers::LinearGroup group({gate_proj, up_proj}, input);
  const at::Tensor gate = call("gate_proj", group[0], x), up = call("up_proj", group[1], x);
  return call("down_proj", down_proj, gate, up);
}

LlamaLayerImpl::LlamaLayerImpl(const LlamaConfig& config, at::TensorOptions options,
                               at::TensorOptions linear_options) {
  self_attn = register_module("self_attn", LlamaAttention(config, options, linear_options));
  mlp = register_module("mlp", LlamaMlp(config, linear_options));
  input_layernorm = register_module("input_layernorm",
                                    layers::RmsNorm(config.hidden, config.rms_norm_eps, options));
  post_attention_layernorm = register_module(
      "post_attention_layernorm", layers::RmsNorm(config.hidden, config.rms_norm_eps, options));
}

at::Tensor LlamaLayerImpl::forward(const at::Tensor& x_btd, const LlamaPass& pass, int64_t layer,
                                   const at::Tensor& rows_k) {
  const Dim d = {"d", input_layernorm->weight.size(0)};
  expect_dims(x_btd, "x", {{"b"}, {"t"}, d});
  const ops::Normed first = call("input_layernorm", input_layernorm, x_btd, at::Tensor());
  const at::Tensor stream = keep_rows(first.sum, rows_k),
                   mixed = call("self_attn", self_attn, first, pass, layer, rows_k);
  expect_dims_like(mixed, "the output of self_attn", stream, d);
  const ops::Normed second =
      call("post_attention_layernorm", post_attention_layernorm, stream, mixed);
  const at::Tensor added = call("mlp", mlp, second);
  expect_dims_like(added, "the output of mlp", stream, d);
  return second.sum + added;
}

LlamaModelImpl::LlamaModelImpl(const LlamaConfig& config, at::TensorOptions options,
                               at::TensorOptions linear_options)
    : config_(config) {
  embed_tokens =
      register_module("embed_tokens", layers::Embedding(config.vocab, config.hidden, options));
  layers = register_module("layers", std::make_shared<layers::StackImpl<LlamaLayer>>());
  for (int64_t i = 0; i < config.layers; ++i)
    layers->push_back(LlamaLayer(config, options, linear_options));
  norm = register_module("norm", layers::RmsNorm(config.hidden, config.rms_norm_eps, options));
}

void LlamaModelImpl::reserve_positions(int64_t count, at::Device device) {
  if (table_.cos.defined() && table_.cos.size(1) >= count && table_.cos.device() == device) return;
  const int64_t length = (count + 511) / 512 * 512;
  const at::Tensor angles =
      at::outer(at::arange(length, at::kLong).to(at::kFloat), rope_inverse_frequencies(config_))
          .unsqueeze(0);
  table_ = {angles.cos().to(device), angles.sin().to(device)};
}

Rotation LlamaModelImpl::rotation_at(const at::Tensor& positions_3bt) const {
  const at::Tensor axes = ops::copy_to_device(axes_of_pairs(config_), positions_3bt.device());
  const at::Tensor turned =
      positions_3bt.index_select(0, axes).permute({1, 2, 0});  // [b, t, e / 2], of each pair
  const auto at_turned = [&](const at::Tensor& table_1te) {
    return table_1te[0].gather(0, turned.flatten(0, 1)).view(turned.sizes());
  };
  return {at_turned(table_.cos), at_turned(table_.sin)};
}

LlamaPass LlamaModelImpl::make_pass(const DecoderInput& input, KvCache* cache) {
  const at::Tensor& embeds_btd = input.embeds_btd;
  LlamaPass pass;
  pass.cache = cache;
  pass.packed = input.packed;
  const at::Device device = embeds_btd.device();
  const bool continues = cache != nullptr && !cache->empty();
  const int64_t seen = continues
                           ? *std::max_element(cache->lengths.begin(), cache->lengths.end()) + 1
                       : pass.packed ? pass.packed->longest()
                                     : embeds_btd.size(1);
  const std::vector<int64_t> next = continues ? next_positions(*cache) : std::vector<int64_t>();
  reserve_positions(
      continues ? std::max(seen, *std::max_element(next.begin(), next.end()) + 1) : seen, device);
  if (pass.packed && !input.positions_3bt.defined()) {
    const at::Tensor positions = ops::copy_to_device(pass.packed->positions(), device);
    pass.rotation = {table_.cos.index_select(1, positions), table_.sin.index_select(1, positions)};
    return pass;
  }
  if (!continues) {
    if (cache != nullptr) {
      cache->keys.resize(static_cast<size_t>(config_.layers));
      cache->values.resize(static_cast<size_t>(config_.layers));
    }
    pass.rotation = input.positions_3bt.defined()
                        ? rotation_at(input.positions_3bt)
                        : Rotation{table_.cos.narrow(1, 0, seen), table_.sin.narrow(1, 0, seen)};
    return pass;
  }
  const at::Tensor positions = at::tensor(cache->lengths, at::kLong).to(device),
                   turned = at::tensor(next, at::kLong).to(device);
  pass.rotation = {table_.cos.index_select(1, turned).transpose(0, 1),
                   table_.sin.index_select(1, turned).transpose(0, 1)};
  // Masked, what lies after a row's last position has a weight of exactly zero.
  const at::Tensor keys = at::arange(whole_steps(seen), positions.options());
  pass.cache_mask = (keys.unsqueeze(0) <= positions.unsqueeze(1)).unsqueeze(1).unsqueeze(1);
  return pass;
}

at::Tensor LlamaModelImpl::forward(const DecoderInput& input, const at::Tensor& rows_k,
                                   KvCache* cache) {
  const at::Tensor& embeds_btd = input.embeds_btd;
  expect_dims(embeds_btd, "embeds", {{"b"}, {"t"}, {"d", config_.hidden}});
  if (rows_k.defined()) expect_dims(rows_k, "rows", {{"k"}});
  if (input.packed)
    expect_dims(embeds_btd, "packed embeds", {{"b", 1}, {"t", input.packed->starts.back()}, {"d"}});
  if (input.positions_3bt.defined())
    expect_dims(input.positions_3bt, "positions",
                {{"axes", 3}, {"b", embeds_btd.size(0)}, {"t", embeds_btd.size(1)}});
  const LlamaPass pass = make_pass(input, cache);
  at::Tensor x = embeds_btd;
  for (int64_t i = 0; i < layers->size(); ++i) {
    const LlamaLayer& layer = (*layers)[i];
    const at::Tensor rows = i + 1 == layers->size() ? rows_k : at::Tensor();
    const auto run = [layer, pass, i, rows](const at::Tensor& input) {
      return call_indexed("layers", i, layer, input, pass, i, rows);
    };
    x = layers::recomputes(i) ? layers::recompute(*layer, x, run) : run(x);
    x = add_deep(x, input, i, rows);
  }
  return call("norm", norm, x);
}

LlamaForCausalLmImpl::LlamaForCausalLmImpl(const LlamaConfig& config, at::TensorOptions options,
                                           at::TensorOptions linear_options) {
  model = register_module("model", LlamaModel(config, options, linear_options));
  if (!config.tie_embeddings)
    lm_head =
        register_module("lm_head", layers::Linear(config.hidden, config.vocab, false, options));
}

at::Tensor LlamaForCausalLmImpl::forward(const DecoderInput& input, const at::Tensor& rows_k,
                                         const at::Tensor& targets_k, KvCache* cache) {
  if (targets_k.defined())
    expect_dims(targets_k, "targets", {{"k", rows_k.defined() ? rows_k.size(0) : kAnySize}});
  const at::Tensor hidden = call("model", model, input, rows_k, cache);
  const bool adapted = lm_head && lm_head->adapter() != nullptr;
  const at::Tensor weight = lm_head ? lm_head->weight : model->embed_tokens->weight;
  if (targets_k.defined() && !adapted) return ops::token_logprobs(hidden, weight, targets_k);
  if (!adapted && !builds_graph(hidden, weight)) {
    return lm_head ? call("lm_head", SlicedHead(lm_head), hidden)
                   : ops::head_logits(hidden, weight);
  }
  const at::Tensor logits =
      (lm_head ? call("lm_head", lm_head, hidden) : ops::linear(hidden, weight, at::Tensor()))
          .to(at::kFloat);
  if (!targets_k.defined()) return logits;
  return at::log_softmax(logits, -1).gather(1, targets_k.unsqueeze(1)).squeeze(1);
}

}  // namespace lft::llama
