#include "models/llama/default_config.h"

#include <utility>
#include <vector>

namespace lft::llama {

LlamaConfig default_config(const std::string& model_type) {
  const LlamaConfig llama{.kv_heads = 0, .head_dim = 0};
  const LlamaConfig mistral{
      .intermediate = 14336, .kv_heads = 8, .head_dim = 0, .max_positions = 131072};
  const LlamaConfig qwen2{.intermediate = 22016,
                          .kv_heads = 32,
                          .head_dim = 0,
                          .vocab = 151936,
                          .max_positions = 32768,
                          .qkv_bias = true};
  const LlamaConfig qwen2_vl{.hidden = 8192,
                             .intermediate = 29568,
                             .layers = 80,
                             .heads = 64,
                             .kv_heads = 8,
                             .head_dim = 0,
                             .vocab = 152064,
                             .max_positions = 32768,
                             .rms_norm_eps = 1e-5,
                             .rope_theta = 1e6,
                             .qkv_bias = true,
                             .mrope_section = {16, 24, 24}};
  const LlamaConfig qwen3{.intermediate = 22016,
                          .kv_heads = 32,
                          .head_dim = 128,
                          .vocab = 151936,
                          .max_positions = 32768,
                          .qk_norm = true};
  const LlamaConfig qwen3_vl{.intermediate = 22016,
                             .kv_heads = 32,
                             .head_dim = 128,
                             .vocab = 151936,
                             .max_positions = 128000,
                             .rope_theta = 5e5,
                             .qk_norm = true,
                             .mrope_section = {24, 20, 20},
                             .mrope_interleaved = true};
  const LlamaConfig qwen3_5{.intermediate = 12288,
                            .heads = 16,
                            .kv_heads = 4,
                            .head_dim = 256,
                            .vocab = 248320,
                            .max_positions = 32768,
                            .qk_norm = true,
                            .mrope_section = {11, 11, 10},
                            .mrope_interleaved = true,
                            .norms_add_one = true,
                            .rotary_share = 0.25,
                            .gated_attention = true};
  LlamaConfig qwen3_vl_moe = qwen3_vl;
  qwen3_vl_moe.hidden = 2048;
  qwen3_vl_moe.intermediate = 5632;
  qwen3_vl_moe.layers = 24;
  qwen3_vl_moe.heads = 16;
  qwen3_vl_moe.kv_heads = 16;
  qwen3_vl_moe.head_dim = 0;
  qwen3_vl_moe.experts = {.count = 60, .per_token = 4, .intermediate = 1408};
  LlamaConfig qwen3_5_moe = qwen3_5;
  qwen3_5_moe.hidden = 2048;
  qwen3_5_moe.layers = 40;
  qwen3_5_moe.kv_heads = 2;
  qwen3_5_moe.experts = {
      .count = 256, .per_token = 8, .intermediate = 512, .shared_intermediate = 512};
  const LlamaConfig gemma3{.hidden = 2304,
                           .intermediate = 9216,
                           .layers = 26,
                           .heads = 8,
                           .kv_heads = 4,
                           .head_dim = 256,
                           .vocab = 262208,
                           .max_positions = 131072,
                           .rope_theta = 1e6,
                           .tie_embeddings = true,
                           .qk_norm = true,
                           .activation = "gelu_pytorch_tanh",
                           .norms_add_one = true,
                           .scales_embeddings = true,
                           .branch_norms = true,
                           .query_scalar = 256,
                           .image_blocks = true,
                           .window = 4096};
  const std::vector<std::pair<const char*, const LlamaConfig&>> all = {
      {"llama", llama},
      {"mistral", mistral},
      {"qwen2", qwen2},
      {"qwen3", qwen3},
      {"qwen2_vl_text", qwen2_vl},
      {"qwen2_vl", qwen2_vl},
      {"qwen2_5_vl_text", qwen2_vl},
      {"qwen2_5_vl", qwen2_vl},
      {"qwen3_vl_text", qwen3_vl},
      {"qwen3_vl_moe_text", qwen3_vl_moe},
      {"qwen3_5_text", qwen3_5},
      {"qwen3_5_moe_text", qwen3_5_moe},
      {"gemma3_text", gemma3}};
  for (const auto& [name, config] : all) {
    if (name == model_type) return config;
  }
  return llama;
}

}  // namespace lft::llama
