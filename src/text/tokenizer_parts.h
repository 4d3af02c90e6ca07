// What a tokenizer is, part by part, as hashes: whether two give the same ids, and where they
// differ.
#pragma once
#include <string>
#include <vector>

#include "src/text/tokenizer.h"
#include "src/text/tokenizer_files.h"

namespace lft::text {

/// Of the files. Key order, white space and spelling of the JSON do not count, nor do keys that
/// change no id.
TokenizerParts file_parts(const TokenizerFiles& files, const Tokenizer& tokenizer);

constexpr const char* kSampleIdsPart = "ids of a sample text";
/// The files' parts, and as kSampleIdsPart the vocabulary's size and the ids of a fixed text that
/// tells fast, slow and legacy tokenizers apart.
TokenizerParts tokenizer_parts(const Tokenizer& tokenizer);
/// sha256 of all parts.
std::string tokenizer_fingerprint(const TokenizerParts& parts);
/// The parts that two tokenizers do not share, by name; those that only one records count.
std::vector<std::string> differing_parts(const TokenizerParts& a, const TokenizerParts& b);

}  // namespace lft::text
