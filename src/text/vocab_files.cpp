#include "src/text/vocab_files.h"

#include "src/base/errors.h"
#include "src/io/files.h"
#include "src/text/pipeline/json_access.h"

namespace lft::text {
namespace {

constexpr uint64_t kMostMergesBytes = 64 << 20;
constexpr const char* kEndOfText = "<|endoftext|>";

/// Qwen2Tokenizer's pattern.
constexpr const char* kQwen2Words =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|)"
    R"(\s*[\r\n]+|\s+(?!\S)|\s+)";

/// One merge per line: its two tokens with one space between them.
io::Json read_merges(const std::string& path) {
  const std::string text = io::read_file(path, kMostMergesBytes);
  io::Json merges = io::Json::array();
  for (size_t begin = 0, number = 1; begin < text.size(); ++number) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    std::string line = text.substr(begin, end - begin);
    begin = end + 1;
    if (line.ends_with('\r')) line.pop_back();
    if (line.starts_with("#version")) continue;
    const size_t space = line.find(' ');
    if (space == std::string::npos || line.find(' ', space + 1) != std::string::npos)
      bad_tokenizer(path + ":" + std::to_string(number), "merge is not a pair of tokens",
                    quote_text(line, 80), "two tokens and a space between them");
    merges.push_back({line.substr(0, space), line.substr(space + 1)});
  }
  return merges;
}

io::Json byte_level(bool add_prefix_space, bool use_regex) {
  return {{"type", "ByteLevel"},
          {"add_prefix_space", add_prefix_space},
          {"trim_offsets", true},
          {"use_regex", use_regex}};
}

/// The id of a token, including tokens that are added later.
int64_t id_of(const TokenizerFiles& files, const io::Json& vocab, const std::string& token) {
  for (const io::Json* ids : {&vocab, &files.added}) {
    const auto found = ids->find(token);
    if (found != ids->end() && found->is_number_unsigned()) return found->get<int64_t>();
  }
  const auto decoder = files.config.find("added_tokens_decoder");
  if (decoder != files.config.end() && decoder->is_object()) {
    for (const auto& [id, added] : decoder->items())
      if (added.is_object() && added.contains("content") && added["content"] == token &&
          id.find_first_not_of("0123456789") == std::string::npos && id.size() < 10 && !id.empty())
        return std::stoll(id);
  }
  bad_tokenizer(files.path("tokenizer_config.json"),
                "a token that goes around texts is not in the vocabulary", token,
                "a token of vocab.json or of the added tokens");
}

/// The tokens that add_bos_token and add_eos_token put around a text.
io::Json ends_of(const TokenizerFiles& files, const io::Json& vocab) {
  const std::string where = files.path("tokenizer_config.json");
  const SpecialTokens special = special_tokens(files);
  const std::string bos = flag_or(files.config, "add_bos_token", false, where) ? special.bos : "",
                    eos = flag_or(files.config, "add_eos_token", false, where) ? special.eos : "";
  if (bos.empty() && eos.empty()) return nullptr;
  io::Json single = io::Json::array(), tokens = io::Json::object();
  const auto add = [&](const std::string& token) {
    if (token.empty()) return;
    single.push_back({{"SpecialToken", {{"id", token}, {"type_id", 0}}}});
    tokens[token] = {{"id", token},
                     {"ids", {static_cast<uint64_t>(id_of(files, vocab, token))}},
                     {"tokens", {token}}};
  };
  add(bos);
  single.push_back({{"Sequence", {{"id", "A"}, {"type_id", 0}}}});
  add(eos);
  return {{"type", "TemplateProcessing"}, {"single", single}, {"special_tokens", tokens}};
}

}  // namespace

void read_vocab_files(TokenizerFiles* files) {
  const std::string where = files->path("tokenizer_config.json");
  std::string name = text_or(files->config, "tokenizer_class", "", where);
  if (name.ends_with("Fast")) name.resize(name.size() - 4);
  const bool qwen = name == "Qwen2Tokenizer";
  if (!qwen && name != "GPT2Tokenizer") {
    bad_tokenizer(where + ": tokenizer_class",
                  "vocab.json and merges.txt alone do not say how texts are cut",
                  name.empty() ? "nothing" : name, "GPT2Tokenizer or Qwen2Tokenizer",
                  "write a tokenizer.json: AutoTokenizer.from_pretrained(DIR), then "
                  "save_pretrained(DIR) in transformers");
  }
  for (const char* key : {"unk_token", "eos_token", qwen ? "pad_token" : "bos_token"})
    if (!files->config.contains(key) && !files->special_map.contains(key))
      files->config[key] = kEndOfText;
  io::Json vocab = io::read_json_file(files->path("vocab.json"));
  if (!vocab.is_object())
    bad_tokenizer(files->path("vocab.json"), "not an object", vocab.type_name(),
                  "an object from tokens to ids");
  const bool prefix = flag_or(files->config, "add_prefix_space", false, where);
  io::Json words = byte_level(prefix, !qwen);
  if (qwen) {
    const io::Json split = {{"type", "Split"},
                            {"pattern", {{"Regex", kQwen2Words}}},
                            {"behavior", "Isolated"},
                            {"invert", false}};
    words = {{"type", "Sequence"}, {"pretokenizers", {split, words}}};
  }
  const io::Json ends = ends_of(*files, vocab);
  files->tokenizer = {{"version", "1.0"},
                      {"normalizer", qwen ? io::Json{{"type", "NFC"}} : io::Json()},
                      {"pre_tokenizer", words},
                      {"post_processor", ends},
                      {"decoder", byte_level(true, true)},
                      {"model",
                       {{"type", "BPE"},
                        {"vocab", std::move(vocab)},
                        {"merges", read_merges(files->path("merges.txt"))}}}};
}

}  // namespace lft::text
