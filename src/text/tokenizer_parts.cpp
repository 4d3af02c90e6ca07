#include "src/text/tokenizer_parts.h"

#include "src/base/hash.h"
#include "src/io/files.h"

namespace lft::text {
namespace {

constexpr uint64_t kMostModelBytes = 64 << 20;

/// Keys of tokenizer_config.json that change ids or answers, as lft reads them.
bool counts(const std::string& key) {
  return key.ends_with("_token") || key.ends_with("special_tokens") ||
         key == "added_tokens_decoder" || key == "legacy";
}

/// Older files use "a b" for ["a", "b"].
io::Json in_pairs(io::Json merges) {
  for (io::Json& merge : merges) {
    if (!merge.is_string()) continue;
    const std::string text = merge.get<std::string>();
    const size_t space = text.find(' ', 1);
    if (space != std::string::npos) merge = {text.substr(0, space), text.substr(space + 1)};
  }
  return merges;
}

}  // namespace

TokenizerParts file_parts(const TokenizerFiles& files, const Tokenizer& tokenizer) {
  std::map<std::string, io::Json> json;
  for (const auto& [key, value] : files.tokenizer.items()) {
    if (key != "version" && key != "truncation" && key != "padding" && key != "model")
      json[key == "added_tokens" ? "added tokens" : key]["tokenizer.json"] = value;
  }
  if (const auto model = files.tokenizer.find("model"); model != files.tokenizer.end()) {
    for (const auto& [key, value] : model->items()) {
      if (key == "merges") json["merges"] = in_pairs(value);
      if (key != "merges" && key != "vocab" && !value.is_null()) json["model options"][key] = value;
    }
  }
  io::Json& added = json["added tokens"];
  added["added_tokens.json"] = files.added;
  for (const auto& [key, value] : files.config.items())
    if (counts(key)) added[key] = value;
  json["special tokens"] = {{"bos", tokenizer.bos_token()},
                            {"eos", tokenizer.eos_token()},
                            {"pad", tokenizer.pad_token()},
                            {"unk", tokenizer.special().unk},
                            {"map", files.special_map}};
  TokenizerParts parts;
  for (const auto& [name, value] : json) parts[name] = sha256(io::json_text(value));
  Sha256 vocabulary;
  for (int64_t id = 0; id < tokenizer.vocab_size(); ++id)
    vocabulary.update(tokenizer.token_of(id) + std::string(1, '\0'));
  parts["vocabulary"] = vocabulary.hex();
  if (files.tokenizer.is_null())
    parts["tokenizer.model"] =
        sha256(io::read_file(files.path("tokenizer.model"), kMostModelBytes));
  return parts;
}

TokenizerParts tokenizer_parts(const Tokenizer& tokenizer) {
  static constexpr const char* kText =
      "USER: <image>\nWhat  is\tin   the photo? ASSISTANT: A na\xC3\xAFve caf\xC3\xA9, 3.14 "
      "\xE4\xBD\xA0\xE5\xA5\xBD "
      "\xF0\x9F\x98\x80.</s>USER: \xE2\x96\x81more"
      "\n\n ASSISTANT:  e\xCC\x81!</s> the end ";
  std::string ids = std::to_string(tokenizer.vocab_size()) + ",";
  for (const Token& token : tokenizer.encode(kText)) ids += std::to_string(token.id) + ",";
  TokenizerParts parts = tokenizer.file_parts();
  parts[kSampleIdsPart] = sha256(ids);
  return parts;
}

std::string tokenizer_fingerprint(const TokenizerParts& parts) {
  Sha256 hash;
  for (const auto& [name, value] : parts) hash.update(name + " " + value + "\n");
  return hash.hex();
}

std::vector<std::string> differing_parts(const TokenizerParts& a, const TokenizerParts& b) {
  std::vector<std::string> names;
  for (const auto& [name, value] : a) {
    const auto other = b.find(name);
    if (other == b.end() || other->second != value) names.push_back(name);
  }
  for (const auto& [name, value] : b)
    if (!a.contains(name)) names.push_back(name);
  return names;
}

}  // namespace lft::text
