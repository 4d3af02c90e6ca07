// The defaults of transformers for decoders.
#pragma once
#include <string>

#include "models/llama/config.h"

namespace lft::llama {

/// What a config.json of this model_type means if it is silent, with properties that no file
/// contains; those of "llama" for an unknown type. kv_heads 0: equal to heads; head_dim 0: hidden /
/// heads.
LlamaConfig default_config(const std::string& model_type);

}  // namespace lft::llama
