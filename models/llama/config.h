// What the text part of a config.json says of a Llama, with transformers' defaults where it is
// silent (old and new spellings). Plain data.
#pragma once
#include <cstdint>
#include <string>

#include "models/base/config_fields.h"

namespace lft::llama {

struct RopeScaling {
  std::string type = "default";  // default, linear, llama3
  double factor = 1, low_freq_factor = 1, high_freq_factor = 4;
  int64_t original_max_positions = 8192;
};

struct LlamaConfig {
  int64_t hidden = 4096, intermediate = 11008, layers = 32, heads = 32, kv_heads = 32,
          head_dim = 128, vocab = 32000, max_positions = 2048;
  double rms_norm_eps = 1e-6, rope_theta = 10000;
  RopeScaling rope_scaling;
  bool attention_bias = false, mlp_bias = false, tie_embeddings = false;
};

/// Throws kInput naming the field for anything out of range (hidden 0, negative, heads that do not
/// divide, 2^31, rope 0, ...), an unsupported model_type, activation or rope type.
LlamaConfig parse_llama_config(const ConfigFields& fields);

}  // namespace lft::llama
