// The decoder of tokenizer.json: token texts back to a string. Knows no ids.
#pragma once
#include <string>
#include <vector>

#include "src/io/json.h"
#include "src/text/pipeline/normalizer.h"

namespace lft::text {

class Decoder {
 public:
  /// null joins the tokens with spaces, as the tokenizers library does.
  Decoder(const io::Json& json, const std::string& where);
  /// Llama's: metaspace to space, byte fallback, fuse, and one leading space away.
  static Decoder llama(bool strip_first_space);
  /// Valid UTF-8.
  std::string decode(std::vector<std::string> tokens) const;

 private:
  enum class Kind { kReplace, kByteFallback, kFuse, kStrip, kByteLevel, kMetaspace };
  struct Step {
    Kind kind;
    std::string content = {};    // what is put in, or what is stripped; Metaspace: its stand-in
    size_t start = 0, stop = 0;  // Strip: at most so many
    bool drop_first = false;     // Metaspace: the first token's stand-ins are dropped
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
