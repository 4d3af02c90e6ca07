// The Llama decoder (Touvron et al. 2023: RMSNorm, rotary positions, grouped-query attention,
// SwiGLU) and models derived from it, up to Gemma 3 (Gemma team 2025: norms after attention and
// MLP, GELU, sliding windows) and Qwen3.5 (gated attention, and recurrent layers). Its input is
// embeddings, not token ids. Shape letters: b batch, t positions, d hidden, v vocabulary, k kept
// rows, h heads, e head_dim.
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
#include "models/llama/gated_delta_net.h"
#include "models/llama/kv_cache.h"
#include "models/llama/mlp.h"
#include "models/llama/sparse_mlp.h"
#include "models/ops/attention/attention.h"

namespace lft::llama {

/// The input of the decoder: padded rows, or packed sequences.
struct DecoderInput {
  DecoderInput() = default;
  DecoderInput(at::Tensor embeds, std::shared_ptr<const ops::PackedSequences> sequences = nullptr)
      : embeds_btd(std::move(embeds)), packed(std::move(sequences)) {}
  operator at::Tensor() const { return embeds_btd; }  // for observers of call()

  at::Tensor embeds_btd;
  std::shared_ptr<const ops::PackedSequences> packed;  // b is 1, t the total; null: padded
  std::vector<int64_t> lengths;  // positions without padding in each row; empty: all
  at::Tensor positions_3bt;  // int64, for rotary embeddings of time, height and width, none above
                             // the token's index in its sequence; undefined: they are that index
  at::Tensor blocks_bt;  // int64 (CPU): positions of one block (0 or more) see each other; -1: in
                         // no block; undefined: there are none
  std::vector<at::Tensor>
      deepstack_features_kd;  // added to the stream after layer 0, 1, ... at deep_places_k,
  at::Tensor deep_places_k;   // their indices in the flat b * t
};

/// Rotary angles of the positions: float32 [1 or b, t, e / 2], or less of a head whose other
/// numbers are not rotated.
struct Rotation {
  at::Tensor cos, sin;
};
/// The state of a pass that every layer reads: rotary angles, packed sequences or the cache
/// (neither: padded rows), and masks.
struct LlamaPass {
  Rotation rotation;
  Rotation queries;  // also scaled for the scores; undefined: `rotation`
  std::shared_ptr<const ops::PackedSequences> packed;  // b is 1, t the total
  KvCache* cache = nullptr;
  at::Tensor cache_mask;  // bool [b, 1, 1, s]: visible cached positions. Undefined: the sequences
                          // begin here
  at::Tensor cache_rows_b, cache_places_b;  // int64: target indices of new keys in the cache
  at::Tensor mask;                          // attention_mask(); undefined: causal
  std::vector<at::Tensor> packed_masks;     // one per sequence; empty: all causal
  RecurrentPass recurrent;                  // of the layers without attention
  layers::RoutingPtr routing;               // of the layers with experts; null: not recorded
};

class LlamaAttentionImpl : public torch::nn::Module {
 public:
  LlamaAttentionImpl(const LlamaConfig& config, at::TensorOptions options,
                     at::TensorOptions linear_options);
  /// Attention over all positions; the output projection runs on `rows` only (flat indices into b *
  /// t; undefined: all).
  at::Tensor forward(const ops::Normed& x_btd, const LlamaPass& pass, int64_t layer,
                     const at::Tensor& rows_k);
  layers::Linear q_proj{nullptr}, k_proj{nullptr}, v_proj{nullptr}, o_proj{nullptr};
  layers::RmsNorm q_norm{nullptr}, k_norm{nullptr};  // per head; null without config.qk_norm

 private:
  /// Attention of one position per row to the cached ones: [b, 1, h * e].
  at::Tensor attend_to_cache(const at::Tensor& q_bthe, const at::Tensor& k_bthe,
                             const at::Tensor& v_bthe, const LlamaPass& pass, int64_t layer) const;
  int64_t heads_, kv_heads_, head_dim_;
  bool gated_;
};
TORCH_MODULE(LlamaAttention);

class LlamaLayerImpl : public torch::nn::Module {
 public:
  LlamaLayerImpl(const LlamaConfig& config, at::TensorOptions options,
                 at::TensorOptions linear_options, int64_t layer = 0);
  /// [b, t, d], or [k, d] if rows are given.
  at::Tensor forward(const at::Tensor& x_btd, const LlamaPass& pass, int64_t layer,
                     const at::Tensor& rows_k);
  layers::RmsNorm input_layernorm{nullptr}, post_attention_layernorm{nullptr};
  layers::RmsNorm pre_feedforward_layernorm{nullptr},
      post_feedforward_layernorm{nullptr};  // null without config.branch_norms: then
                                            // post_attention_layernorm is the norm before the MLP
  LlamaAttention self_attn{nullptr};        // null in a recurrent layer
  GatedDeltaNet linear_attn{nullptr};       // null in the others
  LlamaMlp mlp{nullptr};                    // null in a layer with experts
  SparseMlp sparse_mlp{nullptr};            // null in the others; also named "mlp"
};
TORCH_MODULE(LlamaLayer);

class LlamaModelImpl : public torch::nn::Module {
 public:
  LlamaModelImpl(const LlamaConfig& config, at::TensorOptions options,
                 at::TensorOptions linear_options);
  /// Normalised final states: [b, t, d], or [k, d] of `rows`; then the last layer runs its output
  /// projection and MLP on those only, unless the pass has a load balancing loss (routing.h).
  at::Tensor forward(const DecoderInput& input, const at::Tensor& rows_k, KvCache* cache);
  /// Computes the angles of positions below `count` in advance, so that no later pass up to this
  /// length computes them.
  void reserve_positions(int64_t count, at::Device device);
  layers::Embedding embed_tokens{nullptr};
  layers::Stack<LlamaLayer> layers;
  layers::RmsNorm norm{nullptr};

 private:
  /// The pass of the layers with full attention, or of those with a window (`local`). `continues`:
  /// the cache contains the previous positions.
  LlamaPass make_pass(const DecoderInput& input, KvCache* cache, bool continues, bool local);
  /// `held`: the cache of the previous positions; null: none.
  Rotation rotation_of(const DecoderInput& input, const KvCache* held, bool local);
  /// The sequences of the recurrent layers.
  RecurrentPass recurrent_pass(const DecoderInput& input, KvCache* cache, bool continues) const;
  /// Adds the masks of sequences that start in this pass.
  void add_masks(const DecoderInput& input, bool local, LlamaPass& pass) const;
  /// The angles of three-component positions, from a table of the angles of each position.
  Rotation rotation_at(const Rotation& table, const at::Tensor& positions_3bt) const;
  /// The angles of sequences whose angles depend on their length, computed for each sequence
  /// separately, so that batching and packing do not change them.
  Rotation rotation_by_length(const DecoderInput& input, const KvCache* held, bool local) const;
  /// The angles of positions 0 ... count - 1 of a sequence whose positions are below `length`.
  Rotation table(int64_t count, int64_t length, bool local, at::Device device) const;
  Rotation table_, local_table_;  // for positions 0..., grown on demand; not buffers, never saved
  LlamaConfig config_;
};
TORCH_MODULE(LlamaModel);

class LlamaForCausalLmImpl : public torch::nn::Module {
 public:
  /// linear_options: for the linear layers of the decoder, whose storage may differ from that of
  /// the other parameters.
  LlamaForCausalLmImpl(const LlamaConfig& config, at::TensorOptions options,
                       at::TensorOptions linear_options);
  /// With targets [k] (int64, one per kept row): their log-probabilities, float32 [k]. Without:
  /// float32 logits [b, t, v] or [k, v].
  at::Tensor forward(const DecoderInput& input, const at::Tensor& rows_k,
                     const at::Tensor& targets_k, KvCache* cache);
  /// The part of forward() after the decoder, of normalised final states [b, t, d] or [k, d].
  at::Tensor head(const at::Tensor& hidden, const at::Tensor& targets_k);
  LlamaModel model{nullptr};
  layers::Linear lm_head{nullptr};  // null if it is tied to the embedding
};
TORCH_MODULE(LlamaForCausalLm);

}  // namespace lft::llama
