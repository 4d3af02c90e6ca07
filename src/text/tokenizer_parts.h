// Hashes of the parts of a tokenizer, to compare two tokenizers: whether they give equal ids, and
// in which parts they differ.
#pragma once
#include <string>
#include <vector>

#include "src/text/tokenizer.h"
#include "src/text/tokenizer_files.h"

namespace lft::text {

/// The parts of the files. Key order, white space and spelling of the JSON are ignored, as are keys
/// that do not affect ids.
TokenizerParts file_parts(const TokenizerFiles& files, const Tokenizer& tokenizer);

constexpr const char* kSampleIdsPart = "ids of a sample text";
/// The parts of the files, and as kSampleIdsPart the size of the vocabulary and the ids of a fixed
/// text that differ between fast, slow and legacy tokenizers.
TokenizerParts tokenizer_parts(const Tokenizer& tokenizer);
/// sha256 of all parts.
std::string tokenizer_fingerprint(const TokenizerParts& parts);
/// The names of the parts in which two tokenizers differ, including those that only one records.
std::vector<std::string> differing_parts(const TokenizerParts& a, const TokenizerParts& b);

}  // namespace lft::text
