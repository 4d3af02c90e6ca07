// The decoder of tokenizer.json: converts token texts to a string. Independent of ids.
#pragma once
#include <string>
#include <vector>

#include "src/io/json.h"
#include "src/text/pipeline/normalizer.h"

namespace lft::text {

class Decoder {
 public:
  /// For null the tokens are joined with spaces, as in the tokenizers library.
  Decoder(const io::Json& json, const std::string& where);
  /// Llama's decoder: metaspace to space, byte fallback, fuse, and one leading space removed.
  static Decoder llama(bool strip_first_space);
  /// Returns valid UTF-8.
  std::string decode(std::vector<std::string> tokens) const;
  /// The bytes that one token adds to a text, which may be a part of a character. `first`: nothing
  /// is before it. Without a decoder the space before a token belongs to it.
  std::string bytes_of(const std::string& token, bool first) const;

 private:
  enum class Kind { kReplace, kByteFallback, kFuse, kStrip, kByteLevel, kMetaspace };
  struct Step {
    Kind kind;
    std::string content = {};    // text to insert or to strip; Metaspace: its replacement character
    size_t start = 0, stop = 0;  // Strip: maximum numbers
    bool drop_first = false;     // Metaspace: the first token's replacement characters are dropped
    std::vector<Pattern> pattern = {};
  };
  Decoder() = default;
  void add(const io::Json& json, const std::string& where);
  void add_strip(const io::Json& json, const std::string& where);
  static std::vector<std::string> run(const Step& step, std::vector<std::string> tokens,
                                      size_t source_bytes);

  std::vector<Step> steps_;
  bool join_with_spaces_ = false;
};

}  // namespace lft::text
