#include "src/infer/answer_text.h"

#include <algorithm>
#include <string_view>

namespace lft::infer {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD: bytes of a character miss

}  // namespace

std::string AnswerText::add(int64_t id) {
  if (stopped_) return {};
  ids_.push_back(id);
  const std::string token = tokenizer_.token_of(id);
  // What is not shown, a special token or none at all, is between bytes of one run.
  if (token.empty() || token.starts_with("<0x") || tokenizer_.is_special(id)) return {};
  const std::string text = tokenizer_.decode(ids_);
  return text.ends_with(kReplacement) ? "" : give(text, before_stop(text, /*whole=*/false));
}

std::string AnswerText::finish() {
  if (stopped_) return {};
  const std::string text = tokenizer_.decode(ids_);
  return give(text, before_stop(text, /*whole=*/true));
}

std::string AnswerText::give(const std::string& text, size_t end) {
  if (end <= given_) return {};
  const std::string piece = text.substr(given_, end - given_);
  given_ = end;
  return piece;
}

size_t AnswerText::before_stop(const std::string& text, bool whole) {
  size_t end = std::string::npos;
  for (const std::string& stop : stops_) end = std::min(end, text.find(stop));
  stopped_ = end != std::string::npos;
  if (stopped_) return end;
  end = text.size();
  if (whole) return end;
  for (const std::string& stop : stops_) {
    for (size_t length = std::min(stop.size() - 1, text.size()); length > 0; --length) {
      if (!text.ends_with(std::string_view(stop).substr(0, length))) continue;
      end = std::min(end, text.size() - length);
      break;
    }
  }
  return end;
}

}  // namespace lft::infer
