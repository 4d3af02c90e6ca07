// The files of a tokenizer directory as plain data: special token names and added tokens of
// tokenizer_config.json and its older variants.
#pragma once
#include <string>
#include <vector>

#include "src/io/json.h"
#include "src/text/pipeline/added_tokens.h"
#include "src/text/pipeline/vocabulary.h"
#include "src/text/tokenizer.h"

namespace lft::text {

struct TokenizerFiles {
  std::string dir;
  io::Json tokenizer = {};    // tokenizer.json, or vocab.json and merges.txt in its form; null:
                              // only tokenizer.model
  io::Json config = {};       // tokenizer_config.json, {} if absent
  io::Json special_map = {};  // special_tokens_map.json, {} if absent
  io::Json added = {};        // added_tokens.json, {} if absent
  bool has_model = false;     // tokenizer.model

  std::string path(const std::string& name) const { return dir + "/" + name; }
};

/// Throws kInput if there is no tokenizer, or a file is too large or invalid JSON.
TokenizerFiles read_tokenizer_files(const std::string& dir);
/// {"content": ..., "special": ..., ...}; `normalized` defaults to not special.
AddedToken read_added_token(const io::Json& json, const std::string& where);
/// Adds the tokens that the files next to tokenizer.json list and that the vocabulary lacks or
/// flags differently, in transformers' order.
void add_config_tokens(Vocabulary& vocabulary, const TokenizerFiles& files);
SpecialTokens special_tokens(const TokenizerFiles& files);

}  // namespace lft::text
