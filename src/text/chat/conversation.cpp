#include "src/text/chat/conversation.h"

#include <algorithm>

namespace lft::text {

size_t count_image_marks(std::string_view text) {
  size_t marks = 0;
  for (size_t at = text.find(kImageMark); at != std::string_view::npos;
       at = text.find(kImageMark, at + kImageMark.size()))
    ++marks;
  return marks;
}

std::vector<Part> parts_of(std::string_view text) {
  std::vector<Part> parts;
  while (!text.empty()) {
    const size_t mark = text.find(kImageMark);
    size_t begin = std::min(mark, text.size()),
           end = mark == std::string_view::npos ? begin : mark + kImageMark.size();
    if (end > begin) {
      if (end < text.size() && text[end] == '\n')
        ++end;
      else if (begin > 0 && text[begin - 1] == '\n')
        --begin;
    }
    if (begin > 0) parts.push_back({false, text.substr(0, begin)});
    if (end > begin) parts.push_back({true, text.substr(begin, end - begin)});
    text.remove_prefix(end);
  }
  return parts;
}

std::vector<Part> parts_of(const Message& message) {
  std::vector<Part> parts;
  auto cut = message.cuts.begin();
  for (const Part& part : parts_of(message.text)) {
    const auto begin = static_cast<size_t>(part.text.data() - message.text.data()),
               end = begin + part.text.size();
    size_t from = begin;
    for (; cut != message.cuts.end() && *cut < end; ++cut) {
      if (part.is_image || *cut <= from) continue;
      parts.push_back({false, part.text.substr(from - begin, *cut - from)});
      from = *cut;
    }
    parts.push_back({part.is_image, part.text.substr(from - begin)});
  }
  return parts;
}

std::vector<Turn> turns_of(const std::vector<Message>& messages) {
  std::vector<Turn> turns;
  bool open = false;
  for (const Message& message : messages) {
    if (message.role == "system") continue;
    if (!open) turns.emplace_back();
    open = message.role != "assistant";
    if (open) {
      std::string& question = turns.back().question;
      question += (question.empty() ? "" : "\n") + message.text;
    } else {
      turns.back().answer = message.text;
      turns.back().learnt = message.learnt;
    }
  }
  return turns;
}

const std::string* system_of(const std::vector<Message>& messages) {
  return messages.empty() || messages[0].role != "system" ? nullptr : &messages[0].text;
}

std::vector<Message> messages_of(const std::vector<Turn>& turns, const std::string* system) {
  std::vector<Message> messages;
  if (system != nullptr) messages.push_back({.role = "system", .text = *system});
  for (size_t i = 0; i < turns.size(); ++i) {
    messages.push_back({.role = "user", .text = turns[i].question});
    if (i + 1 < turns.size() || !turns[i].answer.empty())
      messages.push_back({.role = "assistant", .text = turns[i].answer, .learnt = turns[i].learnt});
  }
  return messages;
}

}  // namespace lft::text
