// The normalizer of tokenizer.json: Prepend, Replace, NFC and sequences of them. Anything else is
// refused by name.
#pragma once
#include <string>
#include <vector>

#include "src/io/json.h"
#include "src/text/pipeline/aligned.h"
#include "src/text/pipeline/regex.h"

namespace lft::text {

/// {"String": "x"} or {"Regex": "x"} of tokenizer.json.
class Pattern {
 public:
  Pattern(const io::Json& json, const std::string& where);
  std::vector<ByteRange> find_all(std::string_view text) const;

 private:
  std::string literal_;  // empty: the regex
  std::vector<Regex> regex_;
};

/// Every match becomes `content`, which stands for the bytes it replaces.
Aligned replace_all(const Aligned& in, const std::vector<ByteRange>& matches,
                    std::string_view content);

/// Unicode's composed form (NFC, UAX 15). What changes stands for the run of characters that it was
/// made of: from one of ASCII to the next.
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
    bool nfc = false;              // then nothing else
  };
  void add(const io::Json& json, const std::string& where);
  std::vector<Step> steps_;
};

}  // namespace lft::text
