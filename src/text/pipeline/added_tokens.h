// Added tokens: found in the text before and after normalisation, with the flags of the tokenizers
// library. Knows no model.
#pragma once
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "src/text/pipeline/aligned.h"

namespace lft::text {

struct AddedToken {
  int64_t id = -1;
  std::string content;
  bool special = false;
  bool normalized = true;               // looked for in the normalised text, in its normalised form
  bool lstrip = false, rstrip = false;  // takes the white space before, after
  bool single_word = false;             // only where no word character touches it

  bool operator==(const AddedToken&) const = default;
};

/// A piece of the text: an added token (index into the list given to the matcher) or, with token <
/// 0, text between them.
struct Segment {
  size_t begin = 0, end = 0;
  int token = -1;
};

/// Leftmost match, the longest of those; then on after it.
class TokenMatcher {
 public:
  /// `patterns[i]` is looked for on behalf of `tokens[indices[i]]`. Patterns are not empty.
  TokenMatcher(const std::vector<AddedToken>& tokens, const std::vector<int>& indices,
               const std::vector<std::string>& patterns);
  /// Which of the matches count: token, begin, end. None: all do.
  using Counts = std::function<bool(int, size_t, size_t)>;
  /// Covers the text without gaps; empty for an empty text. Linear in the text.
  std::vector<Segment> split(std::string_view text, const Counts& counts = {}) const;

 private:
  struct Flags {
    bool lstrip, rstrip, single_word;
  };
  size_t longest_match(std::string_view text, size_t pos, int& token) const;

  std::unordered_map<int, Flags> flags_;
  std::vector<int> nodes_;                       // the token whose pattern ends there, or -1
  std::unordered_map<uint64_t, uint32_t> next_;  // node << 8 | byte -> node
  bool first_[256] = {};
};

/// All matches but those of special tokens that touch a `plain` range of the text's source. None
/// where nothing is plain.
TokenMatcher::Counts counted_in(const std::vector<AddedToken>& tokens, const Aligned& text,
                                const std::vector<ByteRange>& plain);

/// Unicode White_Space.
bool is_space(uint32_t code_point);

}  // namespace lft::text
