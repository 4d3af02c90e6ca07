#include "models/llama/llama.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "models/base/call.h"
#include "models/base/dims.h"
#include "models/layers/linear_group.h"
#include "models/layers/recompute.h"
#include "models/layers/routing.h"
#include "models/llama/attention_mask.h"
#include "models/ops/attention/attention.h"
#include "models/ops/attention/cache_attention.h"
#include "models/ops/core/copy_to_device.h"
#include "models/ops/core/precision.h"
#include "models/ops/elementwise/rope.h"
#include "models/ops/elementwise/token_logprobs.h"
#include "models/ops/linear/linear.h"

namespace lft::llama {
namespace {

/// The rows of a [b, t, d] tensor with these flat indices: [k, d]; all rows if `rows` is undefined.
at::Tensor keep_rows(const at::Tensor& x_btd, const at::Tensor& rows_k) {
  return rows_k.defined() ? x_btd.flatten(0, 1).index_select(0, rows_k) : x_btd;
}

/// [b, t, kv, e] -> [b, t, kv * repeat, e]: head h of the result is key head h / repeat.
at::Tensor repeat_heads(const at::Tensor& x, int64_t repeat) {
  if (repeat == 1) return x;
  return x.unsqueeze(3).expand({-1, -1, -1, repeat, -1}).flatten(2, 3);
}

void grow(at::Tensor& held, const at::Tensor& like_bhte, int64_t needed) {
  if (held.defined() && held.size(2) >= needed) return;
  const int64_t capacity =
      whole_key_steps(held.defined() ? std::max(needed, held.size(2) * 2) : needed + 64);
  held = with_capacity(held.defined() ? held : like_bhte.narrow(2, 0, 0), capacity);
}

/// Writes the positions of the first call, from 0 on in all rows.
void store_first(at::Tensor& held, const at::Tensor& fresh_bthe) {
  const at::Tensor fresh = fresh_bthe.transpose(1, 2);
  grow(held, fresh, fresh.size(2));
  held.narrow(2, 0, fresh.size(2)).copy_(fresh);
}

/// Writes to places that all differ, for which PyTorch's deterministic index_put_ on a GPU would
/// sort them first.
class DistinctPlaces {
 public:
  explicit DistinctPlaces(at::Device device)
      : sorts_(!device.is_cpu() && context_.deterministicAlgorithms()),
        warns_(context_.deterministicAlgorithmsWarnOnly()) {
    if (sorts_) context_.setDeterministicAlgorithms(false, warns_);
  }
  ~DistinctPlaces() {
    if (sorts_) context_.setDeterministicAlgorithms(true, warns_);
  }
  DistinctPlaces(const DistinctPlaces&) = delete;

 private:
  at::Context& context_ = at::globalContext();
  const bool sorts_, warns_;
};

/// Appends one position to each row and returns the cache up to the last visible position.
at::Tensor store_next(at::Tensor& held, const at::Tensor& fresh_bthe, const LlamaPass& pass) {
  const int64_t seen = pass.cache_mask.size(3);
  grow(held, fresh_bthe.transpose(1, 2), seen);
  const DistinctPlaces places(held.device());
  held.index_put_({pass.cache_rows_b, at::indexing::Slice(), pass.cache_places_b},
                  fresh_bthe.squeeze(1));
  return held.narrow(2, 0, seen);
}

/// The LM head in a form for call() without a graph: a weight of another dtype is cast one slice at
/// a time.
class SlicedHead {
 public:
  explicit SlicedHead(const layers::Linear& head) : head_(head) {}
  const torch::nn::Module& operator*() const { return *head_; }
  SlicedHead* operator->() { return this; }
  at::Tensor forward(const at::Tensor& hidden) { return ops::head_logits(hidden, head_->weight); }

 private:
  layers::Linear head_;
};

/// Adds the DeepStack features of layer `layer`, if any, to the stream at the image positions: of
/// all rows, or of those that the last layer kept.
at::Tensor add_deep(const at::Tensor& x, const DecoderInput& input, int64_t layer,
                    const at::Tensor& rows_k) {
  if (layer >= static_cast<int64_t>(input.deepstack_features_kd.size())) return x;
  const at::Tensor deepstack_features_kd =
      input.deepstack_features_kd[static_cast<size_t>(layer)].to(x.scalar_type());
  expect_dims(deepstack_features_kd, "deep features",
              {{"k", input.deep_places_k.size(0)}, {"d", x.size(-1)}});
  if (!rows_k.defined())
    return x.flatten(0, 1).index_add(0, input.deep_places_k, deepstack_features_kd).view(x.sizes());
  const at::Tensor& embeds_btd = input.embeds_btd;
  const at::Tensor everywhere =
      at::zeros({embeds_btd.size(0) * embeds_btd.size(1), x.size(-1)}, x.options())
          .index_copy(0, input.deep_places_k, deepstack_features_kd);
  return x + everywhere.index_select(0, rows_k);
}

layers::RmsNorm make_norm(int64_t size, const LlamaConfig& config, at::TensorOptions options) {
  return layers::RmsNorm(size, config.rms_norm_eps, options, config.norms_add_one);
}

bool builds_graph(const at::Tensor& x, const at::Tensor& weight) {
  return at::GradMode::is_enabled() && (x.requires_grad() || weight.requires_grad());
}

int64_t most_held(const KvCache& cache) {
  return *std::max_element(cache.lengths.begin(), cache.lengths.end());
}

/// The position of the next token of each row.
std::vector<int64_t> next_positions(const KvCache& cache) {
  std::vector<int64_t> next = cache.lengths;
  for (size_t row = 0; row < cache.offsets.size(); ++row) next[row] += cache.offsets[row];
  return next;
}

/// x with its first numbers rotated, as many as there are angles.
at::Tensor rotated(const at::Tensor& x_bthe, const Rotation& by) {
  const int64_t turned = 2 * by.cos.size(-1), rest = x_bthe.size(3) - turned;
  if (rest == 0) return ops::rope(x_bthe, by.cos, by.sin);
  const std::vector<at::Tensor> parts = x_bthe.split_with_sizes({turned, rest}, 3);
  return at::cat({ops::rope(parts[0], by.cos, by.sin), parts[1]}, 3);
}

/// The axis (time, height, width) that rotates each pair: int64 [pairs].
at::Tensor axes_of_pairs(const LlamaConfig& config) {
  const std::vector<int64_t>& section = config.mrope_section;
  std::vector<int64_t> axes(static_cast<size_t>(config.rotary_dim() / 2), 0);
  for (int64_t pair = 0; pair < std::ssize(axes); ++pair) {
    int64_t& axis = axes[static_cast<size_t>(pair)];
    if (config.mrope_interleaved) {
      axis = pair / 3 < section[static_cast<size_t>(pair % 3)] ? pair % 3 : 0;
    } else {
      axis = pair < section[0] ? 0 : pair < section[0] + section[1] ? 1 : 2;
    }
  }
  return at::tensor(axes, at::kLong);
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
  q_norm = register_module("q_norm", make_norm(head_dim_, config, options));
  k_norm = register_module("k_norm", make_norm(head_dim_, config, options));
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
    store_first(pass.cache->keys[static_cast<size_t>(layer)], k_bthe);
    store_first(pass.cache->values[static_cast<size_t>(layer)], v_bthe);
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
  const at::Tensor keys = store_next(pass.cache->keys[index], k_bthe, pass),
                   values = store_next(pass.cache->values[index], v_bthe, pass);
  // The heads that share a key head see the same keys, as if they were further queries of one head.
  const at::Tensor mixed = ops::cache_attention(
      q_bthe.view({b, kv_heads_, heads_ / kv_heads_, head_dim_}), keys, values, pass.cache_mask);
  return mixed.reshape({b, 1, heads_ * head_dim_});
}

LlamaLayerImpl::LlamaLayerImpl(const LlamaConfig& config, at::TensorOptions options,
                               at::TensorOptions linear_options, int64_t layer) {
  if (config.recurrent_at(layer)) {
    linear_attn = register_module("linear_attn", GatedDeltaNet(config, options, linear_options));
  } else {
    self_attn = register_module("self_attn", LlamaAttention(config, options, linear_options));
  }
  if (config.sparse_at(layer)) {
    sparse_mlp = register_module("mlp", SparseMlp(config, options, linear_options));
  } else {
    mlp = register_module("mlp", LlamaMlp(config, config.intermediate, linear_options));
  }
  const auto norm = [&](const char* name) {
    return register_module(name, make_norm(config.hidden, config, options));
  };
  input_layernorm = norm("input_layernorm");
  post_attention_layernorm = norm("post_attention_layernorm");
  if (!config.branch_norms) return;
  pre_feedforward_layernorm = norm("pre_feedforward_layernorm");
  post_feedforward_layernorm = norm("post_feedforward_layernorm");
}

at::Tensor LlamaLayerImpl::forward(const at::Tensor& x_btd, const LlamaPass& pass, int64_t layer,
                                   const at::Tensor& rows_k) {
  const Dim d = {"d", input_layernorm->weight.size(0)};
  expect_dims(x_btd, "x", {{"b"}, {"t"}, d});
  const ops::Normed first = call("input_layernorm", input_layernorm, x_btd, at::Tensor());
  const at::Tensor stream = keep_rows(first.sum, rows_k);
  at::Tensor mixed = linear_attn
                         ? call("linear_attn", linear_attn, first, pass.recurrent, layer, rows_k)
                         : call("self_attn", self_attn, first, pass, layer, rows_k);
  expect_dims_like(mixed, linear_attn ? "the output of linear_attn" : "the output of self_attn",
                   stream, d);
  const bool branches = !pre_feedforward_layernorm.is_empty();
  if (branches) mixed = call("post_attention_layernorm", post_attention_layernorm, mixed);
  const ops::Normed second =
      branches ? call("pre_feedforward_layernorm", pre_feedforward_layernorm, stream, mixed)
               : call("post_attention_layernorm", post_attention_layernorm, stream, mixed);
  at::Tensor added = mlp ? call("mlp", mlp, second) : call("mlp", sparse_mlp, second, pass.routing);
  expect_dims_like(added, "the output of mlp", stream, d);
  if (branches) added = call("post_feedforward_layernorm", post_feedforward_layernorm, added);
  return second.sum + added;
}

LlamaModelImpl::LlamaModelImpl(const LlamaConfig& config, at::TensorOptions options,
                               at::TensorOptions linear_options)
    : config_(config) {
  const double scale = config.scales_embeddings ? std::sqrt(static_cast<double>(config.hidden)) : 1;
  embed_tokens = register_module("embed_tokens",
                                 layers::Embedding(config.vocab, config.hidden, options, scale));
  layers = register_module("layers", std::make_shared<layers::StackImpl<LlamaLayer>>());
  for (int64_t i = 0; i < config.layers; ++i)
    layers->push_back(LlamaLayer(config, options, linear_options, i));
  norm = register_module("norm", make_norm(config.hidden, config, options));
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
  const bool continues = cache != nullptr && !cache->empty();
  const LlamaPass pass = make_pass(input, cache, continues, /*local=*/false);
  const LlamaPass local =
      config_.slides.empty() ? pass : make_pass(input, cache, continues, /*local=*/true);
  if (cache != nullptr && !continues) {
    for (auto* layers : {&cache->keys, &cache->values, &cache->states, &cache->inputs})
      layers->resize(static_cast<size_t>(config_.layers));
  }
  const layers::RoutingPtr& routing = layers::routing();
  if (routing) routing->begin(input.lengths, embeds_btd.size(1), embeds_btd.device());
  // The load balancing loss is of all positions, also in the last layer.
  const bool all = routing && routing->balances() && config_.sparse_at(config_.layers - 1);
  at::Tensor x = embeds_btd;
  for (int64_t i = 0; i < layers->size(); ++i) {
    const LlamaLayer& layer = (*layers)[i];
    const LlamaPass& seen = config_.slides_at(static_cast<size_t>(i)) ? local : pass;
    const at::Tensor rows = i + 1 == layers->size() && !all ? rows_k : at::Tensor();
    const auto run = [layer, seen, i, rows](const at::Tensor& input) {
      return call_indexed("layers", i, layer, input, seen, i, rows);
    };
    x = layers::recomputes(i) ? layers::recompute(*layer, x, run) : run(x);
    x = add_deep(x, input, i, rows);
  }
  return call("norm", norm, all ? keep_rows(x, rows_k) : x);
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
  return head(call("model", model, input, rows_k, cache), targets_k);
}

at::Tensor LlamaForCausalLmImpl::head(const at::Tensor& hidden, const at::Tensor& targets_k) {
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

Rotation LlamaModelImpl::table(int64_t count, int64_t length, bool local, at::Device device) const {
  const RopeScaling& scaling = local ? config_.local_rope_scaling : config_.rope_scaling;
  const double theta = local ? config_.local_rope_theta : config_.rope_theta;
  const at::Tensor angles =
      at::outer(at::arange(count, at::kLong).to(at::kFloat),
                scaled_frequencies(scaling, theta, config_.rotary_dim(), length))
          .unsqueeze(0);
  const auto scaled = [&](const at::Tensor& x) {
    return (scaling.attention_factor == 1 ? x : x * scaling.attention_factor).to(device);
  };
  return {scaled(angles.cos()), scaled(angles.sin())};
}

void LlamaModelImpl::reserve_positions(int64_t count, at::Device device) {
  if (table_.cos.defined() && table_.cos.size(1) >= count && table_.cos.device() == device) return;
  const int64_t length = (count + 511) / 512 * 512;
  table_ = table(length, 0, false, device);
  if (!config_.slides.empty()) local_table_ = table(length, 0, true, device);
}

Rotation LlamaModelImpl::rotation_at(const Rotation& table, const at::Tensor& positions_3bt) const {
  const at::Tensor axes = ops::copy_to_device(axes_of_pairs(config_), positions_3bt.device());
  const at::Tensor turned =
      positions_3bt.index_select(0, axes).permute({1, 2, 0});  // [b, t, e / 2], of each pair
  const auto at_turned = [&](const at::Tensor& table_1te) {
    return table_1te[0].gather(0, turned.flatten(0, 1)).view(turned.sizes());
  };
  return {at_turned(table.cos), at_turned(table.sin)};
}

Rotation LlamaModelImpl::rotation_by_length(const DecoderInput& input, const KvCache* held,
                                            bool local) const {
  const at::Device device = input.embeds_btd.device();
  std::vector<at::Tensor> cos, sin;
  const auto add = [&](const Rotation& one) {
    cos.push_back(one.cos);
    sin.push_back(one.sin);
  };
  if (held != nullptr) {
    for (const int64_t next : next_positions(*held)) {
      const Rotation all = table(next + 1, next + 1, local, device);
      add({all.cos.narrow(1, next, 1), all.sin.narrow(1, next, 1)});
    }
    return {at::cat(cos), at::cat(sin)};
  }
  /// Adds `count` positions of row `row` from `first` on, `real` of which are not padding.
  const auto add_sequence = [&](int64_t row, int64_t first, int64_t count, int64_t real) {
    if (!input.positions_3bt.defined()) return add(table(count, real, local, device));
    const at::Tensor places = input.positions_3bt.narrow(1, row, 1).narrow(2, first, count);
    const int64_t most = count == 0 ? 0 : places.max().item<int64_t>() + 1,
                  length = real == 0 ? 0 : places.narrow(2, 0, real).max().item<int64_t>() + 1;
    add(rotation_at(table(most, length, local, device), places));
  };
  if (input.packed) {
    const std::vector<int64_t>& starts = input.packed->starts;
    for (size_t s = 0; s + 1 < starts.size(); ++s)
      add_sequence(0, starts[s], starts[s + 1] - starts[s], starts[s + 1] - starts[s]);
    return {at::cat(cos, 1), at::cat(sin, 1)};
  }
  const int64_t t = input.embeds_btd.size(1);
  for (int64_t row = 0; row < input.embeds_btd.size(0); ++row)
    add_sequence(row, 0, t, input.lengths.empty() ? t : input.lengths[static_cast<size_t>(row)]);
  return {at::cat(cos), at::cat(sin)};
}

Rotation LlamaModelImpl::rotation_of(const DecoderInput& input, const KvCache* held, bool local) {
  const at::Device device = input.embeds_btd.device();
  if ((local ? config_.local_rope_scaling : config_.rope_scaling).follows_length())
    return rotation_by_length(input, held, local);
  const std::vector<int64_t> next =
      held != nullptr ? next_positions(*held) : std::vector<int64_t>();
  reserve_positions(held != nullptr ? std::max(most_held(*held) + 1,
                                               *std::max_element(next.begin(), next.end()) + 1)
                    : input.packed  ? input.packed->longest()
                                    : input.embeds_btd.size(1),
                    device);
  const Rotation& table = local ? local_table_ : table_;
  const auto at_places = [&](const at::Tensor& places) -> Rotation {
    return {table.cos.index_select(1, places), table.sin.index_select(1, places)};
  };
  if (held != nullptr) {
    const Rotation turned = at_places(at::tensor(next, at::kLong).to(device));
    return {turned.cos.transpose(0, 1), turned.sin.transpose(0, 1)};
  }
  if (input.positions_3bt.defined()) return rotation_at(table, input.positions_3bt);
  if (input.packed) return at_places(ops::copy_to_device(input.packed->positions(), device));
  const int64_t positions = input.embeds_btd.size(1);
  return {table.cos.narrow(1, 0, positions), table.sin.narrow(1, 0, positions)};
}

void LlamaModelImpl::add_masks(const DecoderInput& input, bool local, LlamaPass& pass) const {
  const at::Tensor& embeds_btd = input.embeds_btd;
  const at::ScalarType type = ops::op_dtype(ops::Op::kLinear, embeds_btd.scalar_type());
  const auto mask = [&](const at::Tensor& blocks_nt, int64_t positions) {
    return attention_mask({blocks_nt, local ? config_.window : 0}, positions, type,
                          embeds_btd.device());
  };
  if (!input.packed) {
    pass.mask = mask(input.blocks_bt, embeds_btd.size(1));
    return;
  }
  const ops::PackedSequences& packed = *input.packed;
  const at::Tensor blocks_t = input.blocks_bt.defined()
                                  ? ops::with_shared(input.blocks_bt.squeeze(0), packed)
                                  : at::Tensor();
  const std::vector<int64_t> starts = packed.whole_starts();
  bool any = false;
  for (size_t s = 0; s + 1 < starts.size(); ++s) {
    const int64_t count = starts[s + 1] - starts[s];
    const at::Tensor blocks =
        blocks_t.defined() ? blocks_t.narrow(0, starts[s], count).unsqueeze(0) : at::Tensor();
    pass.packed_masks.push_back(mask(blocks, count));
    any = any || pass.packed_masks.back().defined();
  }
  if (!any) pass.packed_masks.clear();
}

RecurrentPass LlamaModelImpl::recurrent_pass(const DecoderInput& input, KvCache* cache,
                                             bool continues) const {
  RecurrentPass pass;
  pass.cache = cache;
  if (input.packed || config_.recurrent.empty()) {
    pass.sequences = input.packed;
    if (!input.packed || input.packed->shared.empty()) return pass;
    auto whole = std::make_shared<ops::PackedSequences>();
    whole->starts = input.packed->whole_starts();
    whole->starts_s1 = input.packed->whole_starts_s1;
    pass.shared = std::exchange(pass.sequences, std::move(whole));
    return pass;
  }
  const at::Device device = input.embeds_btd.device();
  const int64_t b = input.embeds_btd.size(0), t = input.embeds_btd.size(1);
  // Padding follows a row's positions, so that it changes only the states after it.
  const bool pads = cache != nullptr && !continues &&
                    std::ranges::any_of(cache->lengths, [&](int64_t length) { return length < t; });
  auto sequences = std::make_shared<ops::PackedSequences>();
  std::vector<at::Tensor> places;
  sequences->starts = {0};
  for (int64_t row = 0; row < b; ++row) {
    const int64_t length = pads ? cache->lengths[static_cast<size_t>(row)] : t;
    sequences->starts.push_back(sequences->starts.back() + length);
    if (pads) places.push_back(at::arange(row * t, row * t + length, at::kLong));
  }
  if (pads) pass.places_n = ops::copy_to_device(at::cat(places), device);
  if (!device.is_cpu())
    sequences->starts_s1 = ops::copy_to_device(at::tensor(sequences->starts, at::kInt), device);
  pass.sequences = std::move(sequences);
  return pass;
}

LlamaPass LlamaModelImpl::make_pass(const DecoderInput& input, KvCache* cache, bool continues,
                                    bool local) {
  LlamaPass pass;
  pass.cache = cache;
  pass.packed = input.packed;
  pass.recurrent = recurrent_pass(input, cache, continues);
  pass.routing = layers::routing();
  pass.rotation = rotation_of(input, continues ? cache : nullptr, local);
  if (config_.query_scalar > 0 && config_.query_scalar != static_cast<double>(config_.head_dim)) {
    const double factor = std::sqrt(static_cast<double>(config_.head_dim) / config_.query_scalar);
    pass.queries = {pass.rotation.cos * factor, pass.rotation.sin * factor};
  }
  if (!continues) {
    add_masks(input, local, pass);
    return pass;
  }
  const at::Device device = input.embeds_btd.device();
  pass.cache_places_b = at::tensor(cache->lengths, at::kLong).to(device);
  pass.cache_rows_b = at::arange(pass.cache_places_b.size(0), pass.cache_places_b.options());
  const at::Tensor positions = pass.cache_places_b.unsqueeze(1);
  // Masked positions after the end of a row have a weight of exactly zero.
  const at::Tensor keys =
      at::arange(whole_key_steps(most_held(*cache) + 1), positions.options()).unsqueeze(0);
  at::Tensor seen = keys <= positions;
  if (local) seen = seen.bitwise_and(keys > positions - config_.window);
  pass.cache_mask = seen.unsqueeze(1).unsqueeze(1);
  return pass;
}

}  // namespace lft::llama
