// The text part of a config.json of a Llama or of a model derived from it (Mistral, Qwen2, the
// decoders of Qwen-VL, Qwen3.5, Gemma 3), in old and new spellings, with the defaults of
// transformers. Plain data.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "models/base/config_fields.h"
#include "models/llama/rope_scaling.h"

namespace lft::llama {

/// The sizes of the layers with a gated delta rule (gated_delta_net.h).
struct DeltaConfig {
  int64_t key_heads = 16, value_heads = 32, key_dim = 128, value_dim = 128;
  int64_t kernel = 4;  // positions that the convolution sees
  int64_t keys() const { return key_heads * key_dim; }
  int64_t values() const { return value_heads * value_dim; }
  int64_t channels() const { return 2 * keys() + values(); }  // of the convolution
};

/// The sizes of the layers with a mixture of experts (sparse_mlp.h).
struct ExpertConfig {
  int64_t count = 0, per_token = 0, intermediate = 0;
  int64_t shared_intermediate = 0;    // of the expert that computes every token; 0: there is none
  bool balances = false;              // the loss contains the load balancing loss of the router
  double balance_coefficient = 1e-3;  // times this
};

struct LlamaConfig {
  std::string model_type = "llama";  // or another type of parse_llama_config()
  int64_t hidden = 4096, intermediate = 11008, layers = 32, heads = 32, kv_heads = 32,
          head_dim = 128, vocab = 32000, max_positions = 2048;
  double rms_norm_eps = 1e-6, rope_theta = 10000;
  RopeScaling rope_scaling = {};
  bool attention_bias = false, mlp_bias = false, tie_embeddings = false;
  bool qkv_bias = false;                    // on q, k and v (Qwen2); attention_bias: also on o
  bool qk_norm = false;                     // an RMSNorm on each head of q and of k (Qwen3)
  std::vector<int64_t> mrope_section = {};  // pairs of a head rotated by time, height and width;
                                            // empty: a position is one number
  bool mrope_interleaved = false;           // the three alternate (Qwen3-VL) or are consecutive
  std::string activation = "silu";          // for the MLP's gate: silu, gelu_pytorch_tanh
  bool norms_add_one = false;               // norms multiply by 1 + w
  bool scales_embeddings = false;           // by sqrt(hidden)
  bool branch_norms = false;                // norms after attention and MLP, too
  double query_scalar = 0;        // scores are divided by its square root; 0: the head size
  bool image_blocks = false;      // positions of one image see each other in both directions
  std::vector<bool> slides = {};  // layers that see at most `window` positions, including their
                                  // own, and use the local rotary angles; empty: none
  int64_t window = 0;
  double local_rope_theta = 10000;
  RopeScaling local_rope_scaling = {};
  double rotary_share = 1;       // the part of a head that is rotated, the first numbers
  bool gated_attention = false;  // q_proj has a second output per head, whose sigmoid multiplies
                                 // the output of attention
  std::vector<bool> recurrent = {};  // layers with a gated delta rule instead of attention; empty:
                                     // none
  DeltaConfig delta = {};
  ExpertConfig experts = {};
  std::vector<bool> sparse = {};  // layers with experts instead of an MLP; empty: none
  int64_t rotary_dim() const {
    return static_cast<int64_t>(static_cast<double>(head_dim) * rotary_share);
  }
  bool recurrent_at(int64_t layer) const {
    return static_cast<size_t>(layer) < recurrent.size() && recurrent[static_cast<size_t>(layer)];
  }
  bool sparse_at(int64_t layer) const {
    return static_cast<size_t>(layer) < sparse.size() && sparse[static_cast<size_t>(layer)];
  }
  bool has_qkv_bias() const { return attention_bias || qkv_bias; }
  bool slides_at(size_t layer) const { return layer < slides.size() && slides[layer]; }
  /// Whether rotary angles or masks depend on the length of the sequence, for at most `positions`.
  bool follows_length(int64_t positions) const {
    return rope_scaling.follows_length() || local_rope_scaling.follows_length() ||
           (!slides.empty() && window < positions);
  }
};

/// `types`: the values of model_type that the caller supports, from llama, mistral, qwen2,
/// qwen3, qwen2_vl_text, qwen2_vl (the same, flat in an old file), qwen2_5_vl_text, qwen2_5_vl,
/// qwen3_vl_text, qwen3_vl_moe_text, qwen3_5_text, qwen3_5_moe_text and gemma3_text; the first is
/// the default. Throws kInput naming the field for anything out of range, another model_type, or an
/// unsupported activation or rope type.
LlamaConfig parse_llama_config(const ConfigFields& fields,
                               const std::vector<std::string>& types = {"llama"});

}  // namespace lft::llama
