// The normalizer of tokenizer.json: Prepend, Replace, NFC and sequences of them. Others are refused
// by name.
#pragma once
#include <string>
#include <vector>

#include "src/io/json.h"
#include "src/text/pipeline/aligned.h"
#include "src/text/pipeline/regex.h"

namespace lft::text {

/// A pattern, {"String": "x"} or {"Regex": "x"} of tokenizer.json.
class Pattern {
 public:
  Pattern(const io::Json& json, const std::string& where);
  std::vector<ByteRange> find_all(std::string_view text) const;

 private:
  std::string literal_;  // empty: the regex is used
  std::vector<Regex> regex_;
};

/// Every match becomes `content`, with the source range of the replaced bytes.
Aligned replace_all(const Aligned& in, const std::vector<ByteRange>& matches,
                    std::string_view content);

/// Unicode's composed form (NFC, UAX 15). Changed text represents the run of characters that it was
/// made from, between two ASCII characters.
Aligned compose(const Aligned& in);

class Normalizer {
 public:
  /// null is the identity.
  Normalizer(const io::Json& json, const std::string& where);
  Aligned apply(Aligned text) const;
  std::string apply(std::string_view text) const;

 private:
  struct Step {
    std::string content;
    std::vector<Pattern> pattern;  // none: prepend
    bool nfc = false;              // then the other members are unused
  };
  void add(const io::Json& json, const std::string& where);
  std::vector<Step> steps_;
};

}  // namespace lft::text
