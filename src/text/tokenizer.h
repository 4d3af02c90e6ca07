// Text to token ids, equal to those of the HF processor for the same string, with the character
// span of every token. It is independent of images and labels.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "src/text/pipeline/aligned.h"

namespace lft::text {

struct Token {
  int64_t id = 0;
  uint32_t begin = 0, end = 0;  // byte span in the text; an inserted BOS has begin == end == 0
};

/// The names in tokenizer_config.json or special_tokens_map.json; empty if there is none.
struct SpecialTokens {
  std::string bos, eos, pad, unk;
};

/// The sha256 of each part that ids and answers depend on ("vocabulary", "merges", ...).
using TokenizerParts = std::map<std::string, std::string>;

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  /// Loads tokenizer.json if it exists, otherwise tokenizer.model. Throws kInput. A SentencePiece
  /// model is first tried in a child process, so call this before starting threads.
  static std::unique_ptr<Tokenizer> load(const std::string& model_dir);
  /// Thread-safe. BOS follows tokenizer.json and tokenizer_config.json. Special tokens in the text
  /// are recognised. Spans never decrease; the byte tokens of one character share its span; invalid
  /// UTF-8 is read as U+FFFD.
  virtual std::vector<Token> encode(std::string_view text) const = 0;
  /// The same, but special tokens that touch one of the `plain` byte ranges are read as plain text
  /// (HF's split_special_tokens, for a part of the text).
  virtual std::vector<Token> encode_with_plain(std::string_view text,
                                               const std::vector<ByteRange>& plain) const;
  /// Whether skip_special omits the token from an answer.
  virtual bool is_special(int64_t id) const;
  /// The text of ids, without special tokens if `skip_special` is true. Unknown ids are omitted, as
  /// in HF.
  virtual std::string decode(const std::vector<int64_t>& ids, bool skip_special = true) const = 0;
  /// The bytes that the token adds to a decoded text, which may be a part of a character; `first`:
  /// nothing is before it. A special token has those of its name. "" for an unknown id.
  virtual std::string bytes_of(int64_t id, bool first) const;
  virtual int64_t vocab_size() const = 0;                     // 1 + highest id
  virtual int64_t id_of(const std::string& token) const = 0;  // -1 when absent
  virtual std::string token_of(int64_t id) const = 0;         // "" when absent

  const SpecialTokens& special() const { return special_; }
  const std::string& bos_token() const { return special_.bos; }
  const std::string& eos_token() const { return special_.eos; }
  const std::string& pad_token() const { return special_.pad; }
  /// The parts of the files it was loaded from; empty if it was not loaded.
  const TokenizerParts& file_parts() const { return file_parts_; }

 protected:
  SpecialTokens special_;

 private:
  TokenizerParts file_parts_;
};

}  // namespace lft::text
