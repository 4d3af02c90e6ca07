#include "src/debug/data/validate_texts.h"

#include <algorithm>
#include <cstdio>

namespace lft::debug {
namespace {

/// The words between two positions that end with a colon: "USER:".
void add_turn_marks(const std::string& text, size_t begin, size_t end,
                    std::vector<std::string>& marks) {
  while (begin < end) {
    const size_t word = text.find_first_not_of(' ', begin);
    if (word >= end) return;
    begin = std::min(text.find(' ', word), end);
    const std::string mark = text.substr(word, begin - word);
    if (mark.size() > 1 && mark.back() == ':') marks.push_back(mark);
  }
}

}  // namespace

std::vector<std::string> text_marks(const text::Tokenizer& tokenizer,
                                    const data::EncodeOptions& options) {
  std::vector<std::string> marks;
  for (int64_t id = 0; id < tokenizer.vocab_size(); ++id) {
    const std::string token = tokenizer.token_of(id);
    if (token.empty() || id == options.config.image_token) continue;
    if (tokenizer.is_special(id) && options.special_tokens == data::SpecialTokensInText::kError)
      continue;  // in a text it makes the row invalid
    if (tokenizer.decode({id}, /*skip_special=*/true).empty() &&
        tokenizer.decode({id}, /*skip_special=*/false) == token)
      marks.push_back(token);
  }
  const text::Rendered turn = options.chat->render({text::messages_of({{"\x01", "\x02"}})});
  const size_t question = turn.text.find('\x01'), answer = turn.text.find('\x02');
  add_turn_marks(turn.text, 0, question, marks);
  add_turn_marks(turn.text, question + 1, answer, marks);
  return marks;
}

std::vector<std::string> marks_in(std::string_view text, const std::vector<std::string>& marks) {
  std::vector<std::string> found;
  for (const std::string& mark : marks) {
    if (text.find(mark) != std::string_view::npos) found.push_back(mark);
  }
  return found;
}

std::vector<std::string> controls_in(std::string_view text) {
  std::vector<std::string> found;
  const auto add = [&](unsigned code) {
    char name[16];
    std::snprintf(name, sizeof name, "U+%04X", code);
    if (std::ranges::find(found, name) == found.end()) found.emplace_back(name);
  };
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\0') add(0);
    if (i + 2 >= text.size() || text[i] != '\xE2') continue;
    const auto second = static_cast<unsigned char>(text[i + 1]),
               third = static_cast<unsigned char>(text[i + 2]);
    const unsigned code = 0x2000U + (second & 0x3FU) * 64U + (third & 0x3FU);
    if ((code >= 0x202A && code <= 0x202E) || (code >= 0x2066 && code <= 0x2069)) add(code);
  }
  return found;
}

}  // namespace lft::debug
