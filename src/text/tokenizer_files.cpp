#include "src/text/tokenizer_files.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <iterator>

#include "kernels/common/error.h"
#include "src/io/files.h"
#include "src/text/pipeline/json_access.h"
#include "src/text/vocab_files.h"

namespace lft::text {
namespace {

constexpr std::array kNamed = {"bos_token", "eos_token", "unk_token", "sep_token",
                               "pad_token", "cls_token", "mask_token"};
constexpr std::array kLists = {"extra_special_tokens", "additional_special_tokens"};

io::Json read_object(const TokenizerFiles& files, const std::string& name) {
  if (!io::path_exists(files.path(name))) return io::Json::object();
  io::Json json = io::read_json_file(files.path(name));
  if (!json.is_object())
    bad_tokenizer(files.path(name), "not an object", json.type_name(), "an object");
  return json;
}

bool lists_decoder(const TokenizerFiles& files) {
  return is_set(files.config, "added_tokens_decoder");
}

/// A name in transformers' order: the configuration, overridden by the older file if the
/// configuration lists no added tokens.
const io::Json* named(const TokenizerFiles& files, const std::string& key) {
  const bool older_first = !lists_decoder(files);
  if (older_first && is_set(files.special_map, key)) return &files.special_map[key];
  if (is_set(files.config, key)) return &files.config[key];
  return nullptr;
}

/// A plain string is a special token.
AddedToken token_from(const io::Json& json, const std::string& where) {
  if (json.is_string())
    return {.id = -1, .content = json.get<std::string>(), .special = true, .normalized = false};
  AddedToken token = read_added_token(json, where);
  token.special = true;
  return token;
}

int64_t parse_id(const std::string& text, const std::string& where) {
  int64_t id = -1;
  const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), id);
  if (ec != std::errc{} || end != text.data() + text.size() || id < 0) {
    bad_tokenizer(where, "token id is not a whole number", text, "0 or more");
  }
  return id;
}

std::vector<AddedToken> decoder_tokens(const TokenizerFiles& files) {
  const std::string where = files.path("tokenizer_config.json") + ": added_tokens_decoder";
  const io::Json& list = files.config["added_tokens_decoder"];
  if (!list.is_object())
    bad_tokenizer(where, "not an object", list.type_name(), "an object from ids to tokens");
  std::vector<AddedToken> out;
  for (const auto& [id, json] : list.items()) {
    AddedToken token = read_added_token(json, where);
    token.id = parse_id(id, where);
    out.push_back(std::move(token));
  }
  return out;
}

/// added_tokens.json: a token is special if another file declares it so.
std::vector<AddedToken> older_tokens(const TokenizerFiles& files, const Vocabulary& vocabulary) {
  const std::string where = files.path("added_tokens.json");
  std::vector<std::string> special;
  for (const char* key : kNamed) {
    if (const io::Json* json = named(files, key))
      special.push_back(token_from(*json, where).content);
  }
  for (const char* key : kLists) {
    const io::Json* json = named(files, key);
    if (json == nullptr || !json->is_array()) continue;
    for (const io::Json& one : *json) special.push_back(token_from(one, where).content);
  }
  std::vector<AddedToken> out;
  for (const auto& [content, id] : files.added.items()) {
    if (!id.is_number_unsigned())
      bad_tokenizer(where, "token id is not a whole number", content + ": " + id.dump(),
                    "0 or more");
    if (vocabulary.has_added(content)) continue;  // tokenizer.json has more detail
    const bool is_special = std::find(special.begin(), special.end(), content) != special.end();
    out.push_back({.id = id.get<int64_t>(),
                   .content = content,
                   .special = is_special,
                   .normalized = !is_special});
  }
  return out;
}

void add_missing(Vocabulary& vocabulary, const io::Json& json, const std::string& where) {
  const AddedToken token = token_from(json, where);
  if (!vocabulary.has_added(token.content)) vocabulary.add(token, where);
}

/// Keys such as image_token also name a token.
bool names_a_token(const std::string& key, const io::Json& value) {
  return key.ends_with("_token") && value.is_string() &&
         std::find(kNamed.begin(), kNamed.end(), key) == kNamed.end();
}

std::string content_of(const TokenizerFiles& files, const char* key) {
  const io::Json* json = named(files, key);
  if (json == nullptr && is_set(files.special_map, key)) json = &files.special_map[key];
  return json == nullptr ? "" : token_from(*json, files.dir).content;
}

}  // namespace

TokenizerFiles read_tokenizer_files(const std::string& dir) {
  TokenizerFiles files{.dir = dir};
  const bool has_json = io::path_exists(files.path("tokenizer.json"));
  files.has_model = io::path_exists(files.path("tokenizer.model"));
  const bool has_vocab =
      io::path_exists(files.path("vocab.json")) && io::path_exists(files.path("merges.txt"));
  if (!has_json && !files.has_model && !has_vocab) {
    bad_tokenizer(dir, "no tokenizer in the model directory", {},
                  "tokenizer.json, tokenizer.model, or vocab.json and merges.txt",
                  "copy the tokenizer files of the checkpoint there");
  }
  if (has_json) {
    files.tokenizer = read_object(files, "tokenizer.json");
    if (files.tokenizer.empty())
      bad_tokenizer(files.path("tokenizer.json"), "tokenizer file is empty", "{}", "a tokenizer");
  }
  files.config = read_object(files, "tokenizer_config.json");
  files.special_map = read_object(files, "special_tokens_map.json");
  files.added = read_object(files, "added_tokens.json");
  if (!has_json && !files.has_model) read_vocab_files(&files);
  return files;
}

AddedToken read_added_token(const io::Json& json, const std::string& where) {
  if (!json.is_object() || !is_set(json, "content")) {
    bad_tokenizer(where, "added token without content", json.type_name(),
                  "{\"content\": ..., \"special\": ...}");
  }
  AddedToken token;
  token.content = text_or(json, "content", "", where);
  token.special = flag_or(json, "special", false, where);
  token.normalized = flag_or(json, "normalized", !token.special, where);
  token.lstrip = flag_or(json, "lstrip", false, where);
  token.rstrip = flag_or(json, "rstrip", false, where);
  token.single_word = flag_or(json, "single_word", false, where);
  return token;
}

void add_config_tokens(Vocabulary& vocabulary, const TokenizerFiles& files) {
  const std::string where = files.path("tokenizer_config.json");
  if (flag_or(files.config, "split_special_tokens", false, where)) {
    bad_tokenizer(where, "tokenizer component is not supported", "option split_special_tokens",
                  "false, or no such option",
                  "take the option out: a special token in a text is then one token");
  }
  std::vector<AddedToken> tokens =
      lists_decoder(files) ? decoder_tokens(files) : older_tokens(files, vocabulary);
  std::sort(tokens.begin(), tokens.end(),
            [](const AddedToken& a, const AddedToken& b) { return a.id < b.id; });
  std::vector<std::string> names;
  names.reserve(std::size(kNamed));
  for (const char* key : kNamed) names.push_back(content_of(files, key));
  for (AddedToken& token : tokens) {
    const bool is_named = std::find(names.begin(), names.end(), token.content) != names.end();
    token.special = token.special || (is_named && !vocabulary.has_added(token.content));
    vocabulary.add(std::move(token), where);
  }
  for (const char* key : kNamed) {
    if (const io::Json* json = named(files, key)) add_missing(vocabulary, *json, where);
  }
  for (const auto& [key, value] : files.config.items()) {
    if (names_a_token(key, value)) add_missing(vocabulary, value, where);
  }
  for (const char* key : kLists) {
    const io::Json* json = named(files, key);
    if (json == nullptr || !json->is_structured()) continue;
    for (const io::Json& one : *json) add_missing(vocabulary, one, where);
  }
}

SpecialTokens special_tokens(const TokenizerFiles& files) {
  return {.bos = content_of(files, "bos_token"),
          .eos = content_of(files, "eos_token"),
          .pad = content_of(files, "pad_token"),
          .unk = content_of(files, "unk_token")};
}

}  // namespace lft::text
