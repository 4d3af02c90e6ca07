#include "src/text/charsmap.h"
#include "src/text/json_tokenizer.h"
#include "tests/fuzz/targets.h"

namespace lft::fuzz {
using namespace lft::io;
using namespace lft::text;
namespace {

constexpr std::string_view kText =
    "USER: <image>\nWhat  is\tna\xC3\xAFve? \xE4\xBD\xA0 \xF0\x9F\x98\x80 aaab 123456 "
    "\xE2\x96\x81</s>\xFF\xC3 end ";

TokenizerFiles files_of(const Json& json) {
  const auto part = [&](const char* key) {
    const auto found = json.find(key);
    return found != json.end() && found->is_object() ? *found : Json::object();
  };
  return {.dir = "x",
          .tokenizer = json,
          .config = part("tokenizer_config"),
          .special_map = part("special_tokens_map"),
          .added = part("added_tokens_map"),
          .has_model = false};  // the SentencePiece library runs in a child process; here it
                                // would itself be under test
}

void use(const JsonTokenizer& tokenizer) {
  const std::vector<text::Token> tokens = tokenizer.encode(kText);
  std::vector<int64_t> ids;
  uint32_t begin = 0;
  for (const text::Token& token : tokens) {
    expect(token.id >= 0 && token.id < tokenizer.vocab_size(), "ids of the vocabulary");
    expect(token.begin >= begin && token.end >= token.begin && token.end <= kText.size(),
           "spans in the text that never step back");
    begin = token.begin;
    ids.push_back(token.id);
  }
  for (const bool skip_special : {false, true}) {
    const std::string text = tokenizer.decode(ids, skip_special);
    expect(to_valid_utf8(text) == text, "decoded text is UTF-8");
  }
}

}  // namespace

bool tokenizer(std::string_view bytes) {
  return reads(ErrorKind::kInput, [&] {
    const Json json = parse_json(bytes, "tokenizer.json");
    if (!json.is_object())
      throw Error(ErrorKind::kInput, "not an object");  // as in read_tokenizer_files
    use(JsonTokenizer(files_of(json)));
  });
}

/// A tokenizer.model, up to its normalisation rules.
bool charsmap(std::string_view bytes) {
  std::string fault;
  return reads(ErrorKind::kInternal, [&] { fault = text::charsmap_fault(bytes); }) && fault.empty();
}

}  // namespace lft::fuzz
