// Attention of a decoder layer: rotary positions, key heads that several query heads share (Ainslie
// et al. 2023, arXiv 2305.13245), and in some models norms of queries and keys, or a gate. Shape
// letters: b batch, t positions, d hidden, k kept rows, h heads, e head_dim.
#pragma once
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <cstdint>

#include "models/layers/linear.h"
#include "models/layers/norms.h"
#include "models/llama/config.h"
#include "models/llama/pass.h"
#include "models/ops/elementwise/rms_norm.h"

namespace lft::llama {

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

}  // namespace lft::llama
