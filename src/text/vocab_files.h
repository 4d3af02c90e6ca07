// Tokenizers of which a folder has vocab.json and merges.txt alone, as older transformers saved
// those of GPT-2 and Qwen2: put into the form of a tokenizer.json, as transformers 5 builds them.
#pragma once
#include "src/text/tokenizer_files.h"

namespace lft::text {

/// Fills files->tokenizer, and in files->config the special tokens that the tokenizer's class has
/// where the file names none. kInput for a tokenizer_class that is neither GPT2Tokenizer nor
/// Qwen2Tokenizer (each also with "Fast"), and for files that are not of the two formats.
void read_vocab_files(TokenizerFiles* files);

}  // namespace lft::text
