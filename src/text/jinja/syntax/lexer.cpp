#include "src/text/jinja/syntax/lexer.h"

#include <algorithm>

#include "src/base/errors.h"
#include "src/text/jinja/syntax/literals.h"
#include "src/text/jinja/value/unicode.h"

namespace lft::text::jinja {
namespace {

constexpr size_t kMaxSource = 1 << 20;
constexpr size_t kMaxTokens = 200'000;

bool is_word_byte(char byte) {
  return (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') ||
         (byte >= '0' && byte <= '9') || byte == '_';
}

/// The end of the white space that begins at `at`.
size_t space_end(std::string_view text, size_t at) {
  while (at < text.size()) {
    size_t next = at;
    if (!is_space(next_point(text, &next))) break;
    at = next;
  }
  return at;
}

/// The beginning of the white space that ends at `end`.
size_t space_begin(std::string_view text, size_t begin, size_t end) {
  while (end > begin) {
    const size_t before = point_before(text, end);
    size_t at = before;
    if (!is_space(next_point(text, &at))) break;
    end = before;
  }
  return end;
}

/// Converts \r\n and \r to \n; a final one is removed unless it is to be kept.
std::string with_newlines(std::string_view source, bool keep_last) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      out += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      out += source[i];
    }
  }
  if (!keep_last && out.ends_with('\n')) out.pop_back();
  return out;
}

class Lexer {
 public:
  Lexer(std::string source, const Options& options, Work& work)
      : source_(std::move(source)), text_(source_), options_(options), work_(work) {}

  std::vector<Token> run() {
    while (at_ < text_.size()) {
      const size_t tag = next_tag(at_);
      read_data(tag);
      if (at_ < text_.size()) read_tag();
    }
    add(TokenType::kEnd, "");
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void fail(const std::string& what, const std::string& found = {}) {
    work_.at(line_);
    work_.refuse("the chat template is not valid Jinja: " + what, found);
  }

  bool sees(std::string_view word, size_t at) const { return text_.substr(at).starts_with(word); }
  bool sees(std::string_view word) const { return sees(word, at_); }

  /// Moves to `end` and counts lines.
  void advance(size_t end) {
    line_ +=
        static_cast<uint32_t>(std::count(text_.begin() + static_cast<std::ptrdiff_t>(at_),
                                         text_.begin() + static_cast<std::ptrdiff_t>(end), '\n'));
    if (end > at_) line_starts_ = text_[end - 1] == '\n';
    at_ = end;
  }

  void add(TokenType type, std::string_view text, Value number = {}) {
    if (tokens_.size() >= kMaxTokens)
      fail("it has more than " + std::to_string(kMaxTokens) + " tokens");
    tokens_.push_back({type, line_, std::string(text), std::move(number)});
  }

  size_t next_tag(size_t from) const {
    for (size_t at = text_.find('{', from); at != std::string_view::npos;
         at = text_.find('{', at + 1)) {
      if (sees("{{", at) || sees("{%", at) || sees("{#", at)) return at;
    }
    return text_.size();
  }

  /// Template data up to the tag at `tag`, without the part that the tag strips before it.
  void read_data(size_t tag) {
    size_t end = tag;
    const char sign = tag + 2 < text_.size() ? text_[tag + 2] : '\0';
    if (tag < text_.size()) {
      const bool is_print = sees("{{", tag);
      if (sign == '-') {
        end = space_begin(text_, at_, tag);
      } else if (sign != '+' && options_.lstrip_blocks && !is_print) {
        end = stripped_line(at_, tag);
      }
    }
    if (end > at_) add(TokenType::kData, text_.substr(at_, end - at_));
    advance(tag);
  }

  /// The start of the blanks of the line that ends at `tag`, or `tag` if the line has other text.
  size_t stripped_line(size_t begin, size_t tag) const {
    const std::string_view data = text_.substr(begin, tag - begin);
    const size_t newline = data.rfind('\n');
    if (newline == std::string_view::npos && !line_starts_) return tag;
    const size_t line = begin + (newline == std::string_view::npos ? 0 : newline + 1);
    return space_begin(text_, line, tag) == line ? line : tag;
  }

  void read_tag() {
    if (const size_t raw = raw_begin()) return read_raw(raw);
    const bool is_print = sees("{{"), is_comment = sees("{#");
    size_t inside = at_ + 2;
    if (inside < text_.size() && (text_[inside] == '-' || text_[inside] == '+')) ++inside;
    if (is_comment) return read_comment(inside);
    add(is_print ? TokenType::kPrintBegin : TokenType::kBlockBegin, "");
    advance(inside);
    read_code(is_print);
  }

  void read_comment(size_t inside) {
    const size_t close = text_.find("#}", inside);
    if (close == std::string_view::npos) fail("a comment does not end");
    const char sign = close > inside ? text_[close - 1] : '\0';
    advance(end_of_tag(close, sign, options_.trim_blocks));
  }

  /// The position after a tag's closing characters at `close` and the text that they strip.
  size_t end_of_tag(size_t close, char sign, bool trims) const {
    size_t end = close + 2;
    if (sign == '-') return space_end(text_, end);
    if (sign != '+' && trims && end < text_.size() && text_[end] == '\n') ++end;
    return end;
  }

  /// The position after the opening tag of a raw block that begins here, or 0.
  size_t raw_begin() const {
    if (!sees("{%")) return 0;
    size_t at = at_ + 2;
    if (at < text_.size() && (text_[at] == '-' || text_[at] == '+')) ++at;
    at = space_end(text_, at);
    if (!sees("raw", at)) return 0;
    at = space_end(text_, at + 3);
    if (sees("-%}", at)) return space_end(text_, at + 3);
    return sees("%}", at) ? at + 2 : 0;
  }

  void read_raw(size_t begin) {
    advance(begin);
    for (size_t tag = text_.find("{%", at_); tag != std::string_view::npos;
         tag = text_.find("{%", tag + 1)) {
      size_t inside = tag + 2;
      const char sign = inside < text_.size() ? text_[inside] : '\0';
      if (sign == '-' || sign == '+') ++inside;
      inside = space_end(text_, inside);
      if (!sees("endraw", inside)) continue;
      inside = space_end(text_, inside + 6);
      const char last = inside < text_.size() ? text_[inside] : '\0';
      if (last == '-' || last == '+') ++inside;
      if (!sees("%}", inside)) continue;
      read_data_of_raw(tag, sign);
      return advance(end_of_tag(inside, last, options_.trim_blocks));
    }
    fail("a raw block does not end");
  }

  void read_data_of_raw(size_t tag, char sign) {
    size_t end = tag;
    if (sign == '-') {
      end = space_begin(text_, at_, tag);
    } else if (sign != '+' && options_.lstrip_blocks) {
      end = stripped_line(at_, tag);
    }
    if (end > at_) add(TokenType::kData, text_.substr(at_, end - at_));
    advance(tag);
  }

  /// Scans the inside of {{ }} or {% %}, including its end.
  void read_code(bool is_print) {
    const std::string_view close = is_print ? "}}" : "%}";
    std::string open;  // the closing brackets expected
    while (at_ < text_.size()) {
      advance(space_end(text_, at_));
      if (at_ >= text_.size()) break;
      if (open.empty()) {
        const char sign = text_[at_];
        const bool has_sign = (sign == '-' || (sign == '+' && !is_print)) && sees(close, at_ + 1);
        if (has_sign || sees(close)) {
          add(is_print ? TokenType::kPrintEnd : TokenType::kBlockEnd, "");
          const size_t at = has_sign ? at_ + 1 : at_;
          return advance(end_of_tag(at, has_sign ? sign : '\0', !is_print && options_.trim_blocks));
        }
      }
      read_token(&open);
    }
  }

  void read_token(std::string* open) {
    const char first = text_[at_];
    if (first >= '0' && first <= '9') return read_number();
    if (is_word_byte(first)) {
      size_t end = at_;
      while (end < text_.size() && is_word_byte(text_[end])) ++end;
      add(TokenType::kName, text_.substr(at_, end - at_));
      return advance(end);
    }
    if (first == '\'' || first == '"') return read_string(first);
    read_operator(open);
  }

  void read_number() {
    const bool after_dot = at_ > 0 && text_[at_ - 1] == '.';
    const NumberLiteral literal = read_number_literal(text_.substr(at_), after_dot);
    if (literal.too_large)
      fail("an integer has more than 64 bits", quote_text(text_.substr(at_, literal.length), 40));
    add(TokenType::kNumber, text_.substr(at_, literal.length), literal.value);
    advance(at_ + literal.length);
  }

  void read_string(char quote) {
    size_t end = at_ + 1;
    while (end < text_.size() && text_[end] != quote) end += text_[end] == '\\' ? 2 : 1;
    if (end >= text_.size()) fail("a text does not end", quote_text(text_.substr(at_), 20));
    std::string value, fault;
    if (!unescape(text_.substr(at_ + 1, end - at_ - 1), &value, &fault)) fail(fault);
    add(TokenType::kString, value);
    advance(end + 1);
  }

  void read_operator(std::string* open) {
    constexpr std::string_view kTwo[] = {"//", "**", "==", "!=", ">=", "<="};
    constexpr std::string_view kOne = "+-/*%~[](){}><=.:|,;";
    size_t length = 0;
    for (const std::string_view two : kTwo)
      if (sees(two)) length = 2;
    if (length == 0 && kOne.find(text_[at_]) != std::string_view::npos) length = 1;
    if (length == 0) fail("a character has no place there", quote_text(text_.substr(at_, 1)));
    const std::string_view sign = text_.substr(at_, length);
    if (sign == "(") *open += ')';
    if (sign == "[") *open += ']';
    if (sign == "{") *open += '}';
    if (sign == ")" || sign == "]" || sign == "}") {
      if (open->empty() || open->back() != sign[0])
        fail("a bracket closes that is not open", quote_text(sign));
      open->pop_back();
    }
    add(TokenType::kOperator, sign);
    advance(at_ + length);
  }

  const std::string source_;
  const std::string_view text_;
  const Options& options_;
  Work& work_;
  std::vector<Token> tokens_;
  size_t at_ = 0;
  uint32_t line_ = 1;
  bool line_starts_ = true;  // whether the last text read ended a line
};

}  // namespace

std::vector<Token> tokenize(std::string_view source, const Options& options, Work& work) {
  if (source.size() > kMaxSource) {
    work.refuse("the chat template is too long", std::to_string(source.size()) + " bytes",
                "at most " + std::to_string(kMaxSource) + " bytes");
  }
  if (!is_utf8(source)) work.refuse("the chat template is not UTF-8");
  return Lexer(with_newlines(source, options.keep_trailing_newline), options, work).run();
}

}  // namespace lft::text::jinja
