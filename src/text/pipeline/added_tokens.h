// Added tokens: found in the text before and after normalisation, with the flags of the tokenizers
// library. Independent of models.
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
  bool normalized = true;               // searched for in the normalised text, in normalised form
  bool lstrip = false, rstrip = false;  // includes the white space before, after
  bool single_word = false;             // only without adjacent word characters

  bool operator==(const AddedToken&) const = default;
};

/// A piece of the text: an added token (index into the list given to the matcher) or, with token <
/// 0, the text between them.
struct Segment {
  size_t begin = 0, end = 0;
  int token = -1;
};

/// Finds the leftmost match, the longest of those, and continues after it.
class TokenMatcher {
 public:
  /// `patterns[i]` represents `tokens[indices[i]]`. Patterns are not empty.
  TokenMatcher(const std::vector<AddedToken>& tokens, const std::vector<int>& indices,
               const std::vector<std::string>& patterns);
  /// Decides which matches count: token, begin, end. Empty: all do.
  using Counts = std::function<bool(int, size_t, size_t)>;
  /// Covers the text without gaps; empty for an empty text. Linear in the text.
  std::vector<Segment> split(std::string_view text, const Counts& counts = {}) const;

 private:
  struct Flags {
    bool lstrip, rstrip, single_word;
  };
  size_t longest_match(std::string_view text, size_t pos, int& token) const;

  std::unordered_map<int, Flags> flags_;
  std::vector<int> nodes_;                       // the token whose pattern ends at the node, or -1
  std::unordered_map<uint64_t, uint32_t> next_;  // node << 8 | byte -> node
  bool first_[256] = {};
};

/// Rejects special tokens that touch a `plain` range of the text's source. Empty if there are no
/// plain ranges.
TokenMatcher::Counts counted_in(const std::vector<AddedToken>& tokens, const Aligned& text,
                                const std::vector<ByteRange>& plain);

/// Whether the character is Unicode White_Space.
bool is_space(uint32_t code_point);

}  // namespace lft::text
