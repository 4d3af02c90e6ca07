#include "models/llama/llama.h"

#include <ATen/ATen.h>

#include <cmath>
#include <iterator>
#include <vector>

#include "models/base/call.h"
#include "models/base/dims.h"
#include "models/layers/recompute.h"
#include "models/layers/routing.h"
#include "models/ops/elementwise/token_logprobs.h"
#include "models/ops/linear/linear.h"

namespace lft::llama {
namespace {

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

/// Adds the DeepStack features of one layer to the stream at the image positions: of all rows, or
/// of those that the last layer kept.
at::Tensor add_deep(const at::Tensor& x, const DecoderInput& input, const at::Tensor& features_kd,
                    const at::Tensor& rows_k) {
  const at::Tensor deepstack_features_kd = features_kd.to(x.scalar_type());
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

}  // namespace

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

ResidualStream LlamaLayerImpl::forward(const ResidualStream& x_btd, const LlamaPass& pass,
                                       int64_t layer, const at::Tensor& rows_k) {
  const Dim d = {"d", input_layernorm->weight.size(0)};
  expect_dims(x_btd.sum(), "x", {{"b"}, {"t"}, d});
  const ops::Normed first = call("input_layernorm", input_layernorm, x_btd.sum(), x_btd.branch());
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
  return {second.sum, added};
}

LlamaModelImpl::LlamaModelImpl(const LlamaConfig& config, at::TensorOptions options,
                               at::TensorOptions linear_options)
    : angles_(config), config_(config) {
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
  const LlamaPass pass = make_pass(config_, input, cache, /*local=*/false, angles_);
  const LlamaPass local =
      config_.slides.empty() ? pass : make_pass(config_, input, cache, /*local=*/true, angles_);
  if (cache != nullptr && cache->empty()) {
    for (auto* layers : {&cache->keys, &cache->values, &cache->states, &cache->inputs})
      layers->resize(static_cast<size_t>(config_.layers));
  }
  const layers::RoutingPtr& routing = layers::routing();
  if (routing) routing->begin(input.lengths, embeds_btd.size(1), embeds_btd.device());
  // The load balancing loss is of all positions, also in the last layer.
  const bool all = routing && routing->balances() && config_.sparse_at(config_.layers - 1);
  const std::vector<at::Tensor>& deep = input.deepstack_features_kd;
  ResidualStream x = embeds_btd;
  for (int64_t i = 0; i < layers->size(); ++i) {
    const LlamaLayer& layer = (*layers)[i];
    const LlamaPass& seen = config_.slides_at(static_cast<size_t>(i)) ? local : pass;
    const at::Tensor rows = i + 1 == layers->size() && !all ? rows_k : at::Tensor();
    const auto run = [layer, seen, i, rows](const ResidualStream& input) {
      return call_indexed("layers", i, layer, input, seen, i, rows);
    };
    if (layers::recomputes(i)) {
      x = layers::recompute(*layer, x.whole(), run);
    } else {
      x = run(x);
    }
    if (i < std::ssize(deep)) x = add_deep(x.whole(), input, deep[static_cast<size_t>(i)], rows);
  }
  if (all) x = keep_rows(x.whole(), rows_k);
  return call("norm", norm, x.sum(), x.branch());
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

}  // namespace lft::llama
