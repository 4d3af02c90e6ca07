#include "src/infer/answer_text.h"

#include <string_view>

namespace lft::infer {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD: an incomplete character

}  // namespace

std::string AnswerText::add(int64_t id) {
  ids_.push_back(id);
  const std::string token = tokenizer_.token_of(id);
  // A token without text (special or unknown) may be between bytes of one run.
  const bool runs_on = token.empty() || token.starts_with("<0x") || tokenizer_.is_special(id);
  if (runs_on && stop_.empty()) return {};
  const std::string text = tokenizer_.decode(ids_);
  ended_ = ended_ || stop_.are_in(text);
  return runs_on || text.ends_with(kReplacement) ? "" : give(stop_.settled(text));
}

std::string AnswerText::finish() { return give(stop_.cut(tokenizer_.decode(ids_))); }

std::string AnswerText::give(const std::string& text) {
  if (text.size() <= given_) return {};
  const std::string piece = text.substr(given_);
  given_ = text.size();
  return piece;
}

}  // namespace lft::infer
