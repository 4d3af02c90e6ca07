// The Llama decoder (Touvron et al. 2023: RMSNorm, rotary positions, grouped-query attention,
// SwiGLU) and models derived from it, up to Gemma 3 (Gemma team 2025: norms after attention and
// MLP, GELU, sliding windows) and Qwen3.5 (gated attention, and recurrent layers). Its input is
// embeddings, not token ids. Shape letters: b batch, t positions, d hidden, v vocabulary, k kept
// rows, h heads, e head_dim.
#pragma once
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <cstdint>

#include "models/layers/embedding.h"
#include "models/layers/linear.h"
#include "models/layers/norms.h"
#include "models/layers/stack.h"
#include "models/llama/attention.h"
#include "models/llama/config.h"
#include "models/llama/decoder_input.h"
#include "models/llama/gated_delta_net.h"
#include "models/llama/kv_cache.h"
#include "models/llama/mlp.h"
#include "models/llama/pass.h"
#include "models/llama/residual.h"
#include "models/llama/rotary.h"
#include "models/llama/sparse_mlp.h"

namespace lft::llama {

class LlamaLayerImpl : public torch::nn::Module {
 public:
  LlamaLayerImpl(const LlamaConfig& config, at::TensorOptions options,
                 at::TensorOptions linear_options, int64_t layer = 0);
  /// [b, t, d], or [k, d] if rows are given.
  ResidualStream forward(const ResidualStream& x_btd, const LlamaPass& pass, int64_t layer,
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
  /// The angles of later passes up to this number of positions are computed now.
  void reserve_positions(int64_t count, at::Device device) { angles_.reserve(count, device); }
  layers::Embedding embed_tokens{nullptr};
  layers::Stack<LlamaLayer> layers;
  layers::RmsNorm norm{nullptr};

 private:
  RotaryAngles angles_;  // no buffers: never saved
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
