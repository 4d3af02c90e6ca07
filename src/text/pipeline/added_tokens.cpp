#include "src/text/pipeline/added_tokens.h"

#include <algorithm>

#include "src/text/pipeline/regex.h"

namespace lft::text {
namespace {

size_t previous_char(std::string_view text, size_t pos) {
  do --pos;
  while (pos > 0 && (uint8_t(text[pos]) & 0xC0) == 0x80);
  return pos;
}

size_t spaces_before(std::string_view text, size_t pos, size_t limit) {
  while (pos > limit) {
    const size_t before = previous_char(text, pos);
    if (!is_space(utf8_decode(text, before))) break;
    pos = before;
  }
  return std::max(pos, limit);
}

size_t spaces_behind(std::string_view text, size_t pos) {
  while (pos < text.size() && is_space(utf8_decode(text, pos))) pos += utf8_length(text, pos);
  return pos;
}

bool word_touches(std::string_view text, size_t begin, size_t end) {
  // Unicode word characters (Alphabetic, marks, decimal digits, connectors, joiners), as in Rust's
  // \w.
  static const Regex word(
      "[\\p{L}\\p{Nl}\\p{M}\\p{Nd}\\p{Pc}\\x{200C}\\x{200D}\\x{24B6}-\\x{24E9}\\x{1F130}-\\x{1F149}"
      "\\x{1F150}-\\x{1F169}\\x{1F170}-\\x{"
      "1F189}]",
      "added token");
  const auto is_word = [&](size_t pos) {
    return !word.find_all(text.substr(pos, utf8_length(text, pos))).empty();
  };
  return (begin > 0 && is_word(previous_char(text, begin))) || (end < text.size() && is_word(end));
}

}  // namespace

bool is_space(uint32_t c) {
  return (c >= 0x9 && c <= 0xD) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

TokenMatcher::TokenMatcher(const std::vector<AddedToken>& tokens, const std::vector<int>& indices,
                           const std::vector<std::string>& patterns) {
  nodes_.push_back(-1);
  for (size_t i = 0; i < patterns.size(); ++i) {
    const AddedToken& token = tokens[size_t(indices[i])];
    flags_[indices[i]] = {token.lstrip, token.rstrip, token.single_word};
    first_[uint8_t(patterns[i][0])] = true;
    uint32_t node = 0;
    for (const char c : patterns[i]) {
      const auto [it, fresh] =
          next_.try_emplace(uint64_t(node) << 8 | uint8_t(c), uint32_t(nodes_.size()));
      if (fresh) nodes_.push_back(-1);
      node = it->second;
    }
    nodes_[node] = indices[i];
  }
}

size_t TokenMatcher::longest_match(std::string_view text, size_t pos, int& token) const {
  size_t best = 0;
  uint32_t node = 0;
  for (size_t i = pos; i < text.size(); ++i) {
    const auto it = next_.find(uint64_t(node) << 8 | uint8_t(text[i]));
    if (it == next_.end()) break;
    node = it->second;
    if (nodes_[node] < 0) continue;
    token = nodes_[node];
    best = i + 1 - pos;
  }
  return best;
}

std::vector<Segment> TokenMatcher::split(std::string_view text, const Counts& counts) const {
  std::vector<Segment> out;
  size_t done = 0;
  for (size_t pos = 0; pos < text.size();) {
    int token = -1;
    const size_t length = first_[uint8_t(text[pos])] ? longest_match(text, pos, token) : 0;
    if (length == 0) {
      ++pos;
      continue;
    }
    size_t begin = pos, end = pos + length;
    pos = end;
    if (counts && !counts(token, begin, end)) continue;
    const Flags& flags = flags_.at(token);
    if (flags.single_word && word_touches(text, begin, end)) continue;
    if (flags.lstrip) begin = spaces_before(text, begin, std::min(done, begin));
    if (flags.rstrip) end = spaces_behind(text, end);
    begin = std::max(begin, done);  // the previous token's rstrip may include a white space token
    end = std::max(end, begin);
    if (done < begin) out.push_back({done, begin, -1});
    out.push_back({begin, end, token});
    done = end;
  }
  if (done < text.size()) out.push_back({done, text.size(), -1});
  return out;
}

TokenMatcher::Counts counted_in(const std::vector<AddedToken>& tokens, const Aligned& text,
                                const std::vector<ByteRange>& plain) {
  if (plain.empty()) return {};
  return [&](int token, size_t begin, size_t end) {
    if (!tokens[size_t(token)].special) return true;
    const ByteRange source = text.source(begin, end);
    return std::ranges::none_of(plain, [&](const ByteRange& range) {
      return source.begin < range.end && source.end > range.begin;
    });
  };
}

}  // namespace lft::text
