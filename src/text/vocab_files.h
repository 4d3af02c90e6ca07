// Tokenizers from vocab.json and merges.txt alone, as older transformers versions saved those of
// GPT-2 and Qwen2: converted to the form of a tokenizer.json, like in transformers 5.
#pragma once
#include "src/text/tokenizer_files.h"

namespace lft::text {

/// Fills files->tokenizer, and in files->config the default special tokens of the tokenizer's class
/// if the file names none. kInput for a tokenizer_class other than GPT2Tokenizer and Qwen2Tokenizer
/// (each also with "Fast"), and for files in another format.
void read_vocab_files(TokenizerFiles* files);

}  // namespace lft::text
