// Llama (Touvron et al. 2023): RMSNorm, rotary positions, grouped-query attention, SwiGLU; and what
// was made of it, up to Gemma 3 (Gemma team 2025): norms after attention and MLP, GELU, layers with
// a window. Input is embeddings; ids belong to the caller. Shape letters: b batch, t positions, d
// hidden, v vocabulary, k kept rows, h heads, e head_dim.
#pragma once
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <memory>
#include <vector>

#include "models/layers/embedding.h"
#include "models/layers/linear.h"
#include "models/layers/norms.h"
#include "models/layers/stack.h"
#include "models/llama/config.h"
#include "models/llama/kv_cache.h"
#include "models/ops/attention/attention.h"

namespace lft::llama {

/// What a decoder reads, and where: padded rows, or packed sequences.
struct DecoderInput {
  DecoderInput() = default;
  DecoderInput(at::Tensor embeds, std::shared_ptr<const ops::PackedSequences> sequences = nullptr)
      : embeds_btd(std::move(embeds)), packed(std::move(sequences)) {}
  operator at::Tensor() const { return embeds_btd; }  // what hooks see of it

  at::Tensor embeds_btd;
  std::shared_ptr<const ops::PackedSequences> packed;  // b is 1, t their total; null: padded
  std::vector<int64_t> lengths;  // positions of each padded row that are no padding; empty: all
  at::Tensor positions_3bt;  // int64, for rotary embeddings of time, height and width, none above
                             // the token's place in its sequence; undefined: they are that place
  at::Tensor blocks_bt;  // int64 (CPU): positions of one block (0 or more) see each other; -1: in
                         // none; undefined: there are none
  std::vector<at::Tensor>
      deepstack_features_kd;  // added to the stream after layer 0, 1, ... at deep_places_k,
  at::Tensor deep_places_k;   // flat in b * t, where the embeddings are
};

/// Rotary angles of the positions at hand: float32 [1 or b, t, e / 2].
struct Rotation {
  at::Tensor cos, sin;
};
/// What a layer needs to know of the pass: angles, packed sequences or the cache (neither: padded
/// rows), and what is seen.
struct LlamaPass {
  Rotation rotation;
  Rotation queries;  // scaled for the scores, too; undefined: `rotation`
  std::shared_ptr<const ops::PackedSequences> packed;  // b is 1, t their total
  KvCache* cache = nullptr;
  at::Tensor cache_mask;  // bool [b, 1, 1, s]: cached positions that are seen. Undefined: the
                          // sequences begin here
  at::Tensor cache_rows_b, cache_places_b;  // int64: where what comes next goes in the cache
  at::Tensor mask;                          // attention_mask(); undefined: causal
  std::vector<at::Tensor> packed_masks;     // of each sequence; empty: all causal
};

class LlamaAttentionImpl : public torch::nn::Module {
 public:
  LlamaAttentionImpl(const LlamaConfig& config, at::TensorOptions options,
                     at::TensorOptions linear_options);
  /// Attention over all positions, then the output projection of `rows` (flat indices into b * t)
  /// only; undefined: of all.
  at::Tensor forward(const ops::Normed& x_btd, const LlamaPass& pass, int64_t layer,
                     const at::Tensor& rows_k);
  layers::Linear q_proj{nullptr}, k_proj{nullptr}, v_proj{nullptr}, o_proj{nullptr};
  layers::RmsNorm q_norm{nullptr}, k_norm{nullptr};  // of a head; null without config.qk_norm

 private:
  /// Of one position a row, which the cache keeps: [b, 1, h * e].
  at::Tensor attend_to_cache(const at::Tensor& q_bthe, const at::Tensor& k_bthe,
                             const at::Tensor& v_bthe, const LlamaPass& pass, int64_t layer) const;
  int64_t heads_, kv_heads_, head_dim_;
};
TORCH_MODULE(LlamaAttention);

class LlamaMlpImpl : public torch::nn::Module {
 public:
  LlamaMlpImpl(const LlamaConfig& config, at::TensorOptions linear_options);
  at::Tensor forward(const ops::Normed& x);
  layers::Linear gate_proj{nullptr}, up_proj{nullptr}, down_proj{nullptr};

 private:
  ops::Gate gate_;
};
TORCH_MODULE(LlamaMlp);

class LlamaLayerImpl : public torch::nn::Module {
 public:
  LlamaLayerImpl(const LlamaConfig& config, at::TensorOptions options,
                 at::TensorOptions linear_options);
  /// [b, t, d], or [k, d] where rows are given.
  at::Tensor forward(const at::Tensor& x_btd, const LlamaPass& pass, int64_t layer,
                     const at::Tensor& rows_k);
  layers::RmsNorm input_layernorm{nullptr}, post_attention_layernorm{nullptr};
  layers::RmsNorm pre_feedforward_layernorm{nullptr},
      post_feedforward_layernorm{nullptr};  // null without config.branch_norms: then
                                            // post_attention_layernorm is the norm before the MLP
  LlamaAttention self_attn{nullptr};
  LlamaMlp mlp{nullptr};
};
TORCH_MODULE(LlamaLayer);

class LlamaModelImpl : public torch::nn::Module {
 public:
  LlamaModelImpl(const LlamaConfig& config, at::TensorOptions options,
                 at::TensorOptions linear_options);
  /// Normalised final states: [b, t, d], or [k, d] of `rows` (then the last layer runs its output
  /// projection and MLP on them only).
  at::Tensor forward(const DecoderInput& input, const at::Tensor& rows_k, KvCache* cache);
  /// Makes the angles of positions below `count` now, so that no pass over so many has to.
  void reserve_positions(int64_t count, at::Device device);
  layers::Embedding embed_tokens{nullptr};
  layers::Stack<LlamaLayer> layers;
  layers::RmsNorm norm{nullptr};

 private:
  /// Of the layers that see everything, or of those with a window. `continues`: the cache holds the
  /// positions before.
  LlamaPass make_pass(const DecoderInput& input, KvCache* cache, bool continues, bool local);
  /// `held`: what comes before the input; null: nothing.
  Rotation rotation_of(const DecoderInput& input, const KvCache* held, bool local);
  /// For sequences that begin here.
  void add_masks(const DecoderInput& input, bool local, LlamaPass& pass) const;
  /// Of positions of three numbers, from a table of each position's angles.
  Rotation rotation_at(const Rotation& table, const at::Tensor& positions_3bt) const;
  /// Of sequences whose angles depend on their length: each by itself, whatever it is batched or
  /// packed with.
  Rotation rotation_by_length(const DecoderInput& input, const KvCache* held, bool local) const;
  /// Of positions 0 ... count - 1 of a sequence whose positions are below `length`.
  Rotation table(int64_t count, int64_t length, bool local, at::Device device) const;
  Rotation table_, local_table_;  // of positions 0..., grown on demand; not buffers, never saved
  LlamaConfig config_;
};
TORCH_MODULE(LlamaModel);

class LlamaForCausalLmImpl : public torch::nn::Module {
 public:
  /// linear_options: of the decoder layers' linear layers, which may be stored another way than the
  /// rest.
  LlamaForCausalLmImpl(const LlamaConfig& config, at::TensorOptions options,
                       at::TensorOptions linear_options);
  /// With targets [k] (int64, one a kept row): their log-probabilities, float32 [k]. Without:
  /// float32 logits [b, t, v] or [k, v].
  at::Tensor forward(const DecoderInput& input, const at::Tensor& rows_k,
                     const at::Tensor& targets_k, KvCache* cache);
  LlamaModel model{nullptr};
  layers::Linear lm_head{nullptr};  // null where embeddings are tied
};
TORCH_MODULE(LlamaForCausalLm);

}  // namespace lft::llama
