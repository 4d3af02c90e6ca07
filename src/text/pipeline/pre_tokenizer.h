// The pre_tokenizer of tokenizer.json: Metaspace, Split, Digits, ByteLevel and sequences of them.
// Others are refused by name.
#pragma once
#include <string>
#include <vector>

#include "src/io/json.h"
#include "src/text/pipeline/normalizer.h"

namespace lft::text {

/// The words of one text, in order; text outside of all words was removed.
struct Words {
  Aligned text;
  std::vector<ByteRange> words;
};

class PreTokenizer {
 public:
  /// For null the text is one word.
  PreTokenizer(const io::Json& json, const std::string& where);
  Words apply(Aligned segment) const;

 private:
  enum class Kind { kMetaspace, kSplit, kByteLevel };
  enum class Prepend { kAlways, kFirst, kNever };
  enum class Behavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };
  struct Step {
    Kind kind;
    std::string replacement = {};  // Metaspace's replacement character for a space
    Prepend prepend = Prepend::kNever;
    bool split = false, invert = false;
    Behavior behavior = Behavior::kIsolated;
    std::vector<Pattern> pattern = {};
  };
  struct Part {
    ByteRange range;
    bool is_match;
  };
  void add(const io::Json& json, const std::string& where);
  void add_metaspace(const io::Json& json, const std::string& where);
  void add_split(const io::Json& json, const std::string& where);
  void add_digits(const io::Json& json, const std::string& where);
  void add_byte_level(const io::Json& json, const std::string& where);
  static Words run(const Step& step, const Words& in);
  static std::vector<ByteRange> cut(const Step& step, std::string_view text);
  static std::vector<ByteRange> join(Behavior behavior, const std::vector<Part>& parts);

  std::vector<Step> steps_;
};

}  // namespace lft::text
