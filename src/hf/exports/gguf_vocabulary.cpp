#include "src/hf/exports/gguf_vocabulary.h"

#include <array>
#include <set>

#include "kernels/common/error.h"
#include "src/text/tokenizer.h"
#include "src/text/tokenizer_files.h"

namespace lft::hf {
namespace {

/// Token types of GGUF.
constexpr int32_t kNormal = 1, kControl = 3, kUserDefined = 4, kUnused = 5;

/// A pre-tokenizer: its expression in tokenizer.json, and llama.cpp's name.
const std::array<std::pair<std::string, std::string>, 2> kSplits = {
    {{R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|)"
      R"( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
      "qwen2"},
     {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|)"
      R"( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
      "llama-bpe"}}};

[[noreturn]] void no_counterpart(const std::string& where, const std::string& what,
                                 const std::string& found) {
  refuse(ErrorKind::kInput, "llama.cpp has no counterpart of this tokenizer", where + ": " + what,
         found.substr(0, 200), "byte-level BPE that cuts words as Qwen2, Llama 3 or SmolLM does",
         "convert the merged model with llama.cpp's own scripts, if they know it");
}

io::Json member(const io::Json& json, const char* key) {
  return json.is_object() ? json.value(key, io::Json()) : io::Json();
}

/// llama.cpp's name of the pre-tokenizer.
std::string pre_tokenizer(const io::Json& json, const std::string& where) {
  const io::Json list = member(json, "pretokenizers");
  if (member(json, "type") == "Sequence" && list.is_array() && list.size() == 2 &&
      member(list[1], "type") == "ByteLevel") {
    const io::Json& first = list[0];
    const bool own_cut = member(list[1], "use_regex") != false;
    const io::Json regex = member(member(first, "pattern"), "Regex");
    for (const auto& [expression, name] : kSplits) {
      if (member(first, "type") == "Split" && !own_cut && regex == expression) return name;
    }
    if (member(first, "type") == "Digits" && own_cut && member(first, "individual_digits") == true)
      return "smollm";
  }
  no_counterpart(where, "pre_tokenizer", json.dump());
}

std::vector<std::string> merges_of(const io::Json& model, const std::string& where) {
  std::vector<std::string> merges;
  for (const io::Json& merge : member(model, "merges")) {
    if (merge.is_string()) {
      merges.push_back(merge.get<std::string>());
    } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() &&
               merge[1].is_string()) {
      merges.push_back(merge[0].get<std::string>() + " " + merge[1].get<std::string>());
    } else {
      no_counterpart(where, "merges", merge.dump());
    }
  }
  return merges;
}

void check_model(const io::Json& json, const std::string& where) {
  if (member(member(json, "model"), "type") != "BPE")
    no_counterpart(where, "model", member(member(json, "model"), "type").dump());
  const io::Json normalizer = member(json, "normalizer");
  if (!normalizer.is_null() && member(normalizer, "type") != "NFC")
    no_counterpart(where, "normalizer", normalizer.dump());
}

/// Texts and types of all tokens.
void add_tokens(const text::Tokenizer& tokenizer, const io::Json& json, int64_t rows,
                io::GgufKeys* keys) {
  std::set<std::string> added;
  for (const io::Json& token : member(json, "added_tokens"))
    if (const io::Json content = member(token, "content"); content.is_string())
      added.insert(content.get<std::string>());
  const io::Json vocab = member(member(json, "model"), "vocab");
  std::vector<std::string> tokens;
  std::vector<int32_t> kinds;
  for (int64_t id = 0; id < rows; ++id) {
    const std::string token = tokenizer.token_of(id);
    const bool own = !token.empty() && !added.contains(token) && vocab.contains(token);
    tokens.push_back(token.empty() ? "[PAD" + std::to_string(id) + "]" : token);
    kinds.push_back(token.empty()              ? kUnused
                    : tokenizer.is_special(id) ? kControl
                    : own                      ? kNormal
                                               : kUserDefined);
  }
  keys->emplace_back("tokenizer.ggml.tokens", tokens);
  keys->emplace_back("tokenizer.ggml.token_type", kinds);
}

}  // namespace

io::GgufKeys gguf_vocabulary(const std::string& model_dir, int64_t rows, const std::string& end) {
  const text::TokenizerFiles files = text::read_tokenizer_files(model_dir);
  const std::string where = files.path("tokenizer.json");
  if (!files.tokenizer.is_object() || files.has_model)
    no_counterpart(model_dir, "tokenizer", "a SentencePiece model");
  check_model(files.tokenizer, where);
  io::GgufKeys keys = {
      {"tokenizer.ggml.model", std::string("gpt2")},
      {"tokenizer.ggml.pre", pre_tokenizer(member(files.tokenizer, "pre_tokenizer"), where)}};
  const std::unique_ptr<text::Tokenizer> tokenizer = text::Tokenizer::load(model_dir);
  if (tokenizer->vocab_size() > rows)
    no_counterpart(where, "vocabulary",
                   std::to_string(tokenizer->vocab_size()) + " tokens for " + std::to_string(rows) +
                       " rows of the embedding");
  add_tokens(*tokenizer, files.tokenizer, rows, &keys);
  keys.emplace_back("tokenizer.ggml.merges", merges_of(member(files.tokenizer, "model"), where));
  const text::SpecialTokens& special = tokenizer->special();
  const auto add_id = [&](const char* key, const std::string& token) {
    const int64_t id = token.empty() ? -1 : tokenizer->id_of(token);
    if (id >= 0) keys.emplace_back(key, static_cast<uint32_t>(id));
  };
  add_id("tokenizer.ggml.bos_token_id", special.bos);
  add_id("tokenizer.ggml.eos_token_id",
         !end.empty() && tokenizer->id_of(end) >= 0 ? end : special.eos);
  add_id("tokenizer.ggml.unknown_token_id", special.unk);
  add_id("tokenizer.ggml.padding_token_id", special.pad);
  const std::vector<text::Token> sample = tokenizer->encode("a");
  const bool adds = !sample.empty() && sample[0].begin == 0 && sample[0].end == 0;
  keys.emplace_back("tokenizer.ggml.add_bos_token", adds);
  return keys;
}

}  // namespace lft::hf
