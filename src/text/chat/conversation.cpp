#include "src/text/chat/conversation.h"

#include <algorithm>

namespace lft::text {

namespace {

/// The positions of "<image>" in `text`.
std::vector<size_t> marks_in(std::string_view text) {
  std::vector<size_t> marks;
  for (size_t at = text.find(kImageMark); at != std::string_view::npos;
       at = text.find(kImageMark, at + kImageMark.size()))
    marks.push_back(at);
  return marks;
}

/// The text parts between images.
std::vector<Part> whole_parts(const Message& message) {
  const std::string_view text = message.text;
  std::vector<Part> parts;
  size_t from = 0;
  for (const size_t mark : marks_of(message)) {
    size_t begin = mark, end = mark + kImageMark.size();
    if (end < text.size() && text[end] == '\n')
      ++end;
    else if (begin > from && text[begin - 1] == '\n')
      --begin;
    if (begin > from) parts.push_back({false, text.substr(from, begin - from)});
    parts.push_back({true, text.substr(begin, end - begin)});
    from = end;
  }
  if (from < text.size()) parts.push_back({false, text.substr(from)});
  return parts;
}

}  // namespace

size_t count_image_marks(std::string_view text) { return marks_in(text).size(); }

std::vector<size_t> marks_of(const Message& message) {
  return message.marks ? *message.marks : marks_in(message.text);
}

std::vector<Part> parts_of(const Message& message) {
  std::vector<Part> parts;
  auto cut = message.cuts.begin();
  for (const Part& part : whole_parts(message)) {
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
