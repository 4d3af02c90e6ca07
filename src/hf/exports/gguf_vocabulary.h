// A tokenizer as llama.cpp's files have it. Knows no weights.
#pragma once
#include <string>

#include "src/io/gguf/gguf.h"

namespace lft::hf {

/// Keys of tokens, kinds, merges and special tokens, of the tokenizer in a model's folder, filled
/// up to `rows` of the embedding with tokens that no text has. `end`: what ends an answer; empty:
/// the tokenizer's end token. kInput for a tokenizer that llama.cpp has no counterpart of: no BPE
/// over bytes, or another way to cut words than those of Qwen2, Llama 3 and SmolLM.
io::GgufKeys gguf_vocabulary(const std::string& model_dir, int64_t rows, const std::string& end);

}  // namespace lft::hf
