// The tokenizer as llama.cpp metadata. Independent of weights.
#pragma once
#include <string>

#include "src/io/gguf/gguf.h"

namespace lft::hf {

/// The keys of tokens, types, merges and special tokens of the tokenizer in a model folder, padded
/// to the `rows` of the embedding with unused tokens. `end`: the end-of-turn token; empty: the end
/// token of the tokenizer. Throws kInput for a tokenizer without a counterpart in llama.cpp: not
/// byte-level BPE, or another pre-tokenizer than those of Qwen2, Llama 3 and SmolLM.
io::GgufKeys gguf_vocabulary(const std::string& model_dir, int64_t rows, const std::string& end);

}  // namespace lft::hf
