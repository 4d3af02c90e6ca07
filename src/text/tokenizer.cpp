#include "src/text/tokenizer.h"

#include "src/base/hash.h"
#include "src/text/json_tokenizer.h"
#include "src/text/model_tokenizer.h"

namespace lft::text {

std::unique_ptr<Tokenizer> Tokenizer::load(const std::string& model_dir) {
  const TokenizerFiles files = read_tokenizer_files(model_dir);
  if (!files.tokenizer.is_null()) return std::make_unique<JsonTokenizer>(files);
  return std::make_unique<ModelTokenizer>(files);
}

std::string tokenizer_fingerprint(const Tokenizer& tokenizer) {
  static constexpr const char* kText =
      "USER: <image>\nWhat  is\tin   the photo? ASSISTANT: A na\xC3\xAFve caf\xC3\xA9, 3.14 "
      "\xE4\xBD\xA0\xE5\xA5\xBD "
      "\xF0\x9F\x98\x80.</s>USER: \xE2\x96\x81more"
      "\n\n ASSISTANT:  e\xCC\x81!</s> the end ";
  std::string ids = std::to_string(tokenizer.vocab_size()) + ",";
  for (const Token& token : tokenizer.encode(kText)) ids += std::to_string(token.id) + ",";
  return sha256(ids);
}

}  // namespace lft::text
