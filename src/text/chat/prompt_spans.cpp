#include "src/text/chat/prompt_spans.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <set>

#include "kernels/common/error.h"
#include "src/base/errors.h"

namespace lft::text {
namespace {

using Span = Rendered::Span;
using Field = ValueOwner::Field;

/// The end of a turn: its position, and whether the end token must be inserted there.
struct TurnEnd {
  size_t at;
  bool is_added;
};

class Prompt {
 public:
  Prompt(const Prompted& prompted, const SpanRules& rules)
      : prompted_(prompted),
        text_(prompted.rendering.text.bytes()),
        rules_(rules),
        words_(words_of(prompted.rendering, prompted.owners)) {
    for (const jinja::Run& run : prompted.rendering.text.runs()) add_given(run);
  }

  Rendered finish() {
    out_.has_bos = !rules_.bos.empty() && text_.starts_with(rules_.bos);
    find_images();
    check_answers();
    for (const Span& span : given_) out_.given.push_back(span);
    if (prompted_.marks_generation)
      take_marked();
    else
      take_words();
    write_text();
    return std::move(out_);
  }

 private:
  void add_given(const jinja::Run& run) {
    if (prompted_.owners.at(static_cast<size_t>(run.source)).field == Field::kNone) return;
    if (!given_.empty() && given_.back().end == run.begin)
      given_.back().end = run.end;
    else
      given_.push_back({run.begin, run.end});
  }

  bool is_answer(int32_t message) const { return message_of(message).role == "assistant"; }
  const Message& message_of(int32_t number) const {
    return prompted_.conversation.messages.at(static_cast<size_t>(number));
  }

  /// Placeholders written by the template; the row's own words are not placeholders.
  void find_images() {
    size_t images = 0;
    for (const Message& message : prompted_.conversation.messages)
      images += marks_of(message).size();
    auto given = given_.begin();
    for (size_t at = text_.find(rules_.placeholder); at != std::string_view::npos;
         at = text_.find(rules_.placeholder, at + 1)) {
      const size_t end = at + rules_.placeholder.size();
      while (given != given_.end() && given->end <= at) ++given;
      if (given == given_.end() || given->begin >= end) out_.images.push_back({at, end});
    }
    if (out_.images.size() == images) return;
    refuse(ErrorKind::kInput, "the chat template does not write one placeholder for each image",
           rules_.where, std::to_string(out_.images.size()) + " times " + rules_.placeholder,
           std::to_string(images),
           "take the chat template of the checkpoint, or one for its processor");
  }

  void check_answers() const {
    for (size_t i = 0; i < prompted_.conversation.messages.size(); ++i) {
      const Message& message = prompted_.conversation.messages[i];
      const bool says_something = message.text.find_first_not_of(" \t\r\n") != std::string::npos ||
                                  !message.tool_calls.empty();
      const auto number = static_cast<int32_t>(i);
      if (message.role != "assistant" || !says_something ||
          std::ranges::find(words_, number, &MessageWords::message) != words_.end())
        continue;
      refuse(ErrorKind::kInput, "the chat template leaves out an answer, or rewrites it",
             rules_.where,
             quote_text(message.text.empty() ? message.tool_calls : message.text, 80) +
                 rewritten_by(number),
             "the words of each answer in the prompt, as they are",
             "take another chat template, or take the row out");
    }
  }

  std::string rewritten_by(int32_t message) const {
    for (size_t i = 0; i < prompted_.rendering.lost.size(); ++i) {
      const ValueOwner& owner =
          prompted_.owners.at(static_cast<size_t>(prompted_.rendering.lost[i]));
      if (owner.message == message && owner.field == Field::kWords)
        return ", rewritten by " + prompted_.rendering.lost_by[i];
    }
    return "";
  }

  /// The end of the turn of an answer whose words end there, before `limit`.
  TurnEnd end_of_turn(int32_t message, size_t words_end, size_t limit) const {
    const std::string_view tail = text_.substr(0, limit);
    const bool is_last = message + 1 == std::ssize(prompted_.conversation.messages);
    const bool calls = !message_of(message).tool_calls.empty();
    const TurnEnds& known = calls ? rules_.calls : rules_.words;
    const std::string& wanted = is_last ? known.last : known.inner;
    if (const size_t at = wanted.empty() ? tail.npos : tail.find(wanted, words_end);
        at != tail.npos)
      return {at + wanted.size(), false};
    std::optional<size_t> first, end;
    for (const std::string& token : rules_.ends) {
      const size_t at = tail.find(token, words_end);
      if (at == tail.npos || (first && at >= *first)) continue;
      first = at;
      end = at + token.size();
    }
    if (end) return {*end, false};
    const auto number = static_cast<size_t>(message);
    if (number < prompted_.call_tails.size()) {
      const std::string& own = prompted_.call_tails[number];
      if (text_.substr(words_end).starts_with(own)) return {words_end + own.size(), true};
    }
    return {words_end, !rules_.ends_turns};
  }

  /// The beginning of the next words of another message.
  size_t next_given(size_t after) const {
    const auto next = std::ranges::lower_bound(given_, after, {}, &Span::begin);
    return next == given_.end() ? text_.size() : next->begin;
  }

  void take(int32_t message, Span span, bool adds_end) {
    std::vector<Span>& list = message_of(message).learnt ? out_.supervised : out_.masked;
    list.push_back(span);
    if (adds_end) added_.push_back({span.end, &list, list.size() - 1});
  }

  void take_words() {
    size_t before = 0;  // the end of the previous words
    for (size_t i = 0; i < words_.size(); ++i) {
      const auto& [message, whole, begins_with_call] = words_[i];
      Span span = whole;
      const std::string_view gap = text_.substr(before, span.begin - before);
      if (begins_with_call && gap.ends_with(rules_.opening)) span.begin -= rules_.opening.size();
      before = span.end;
      if (!is_answer(message)) continue;
      const bool more = std::any_of(
          words_.begin() + static_cast<std::ptrdiff_t>(i) + 1, words_.end(),
          [number = message](const MessageWords& other) { return other.message == number; });
      if (more) {
        take(message, span, false);
        continue;
      }
      const TurnEnd end = end_of_turn(message, span.end, next_given(span.end));
      take(message, {span.begin, end.at}, end.is_added);
    }
  }

  /// A marked range belongs to the answer whose words it contains, or else to the nearest one. The
  /// end token is inserted after the last words of an answer's last range.
  void take_marked() {
    struct Marked {
      int32_t owner;
      Span span;
      size_t last;  // the end of the words
    };
    std::vector<Marked> taken;
    for (const jinja::Rendering::Span& marked : prompted_.rendering.generation) {
      Marked one{owner_near(marked.begin), {marked.begin, marked.end}, marked.begin};
      for (const MessageWords& words : words_) {
        if (words.span.end <= marked.begin || words.span.begin >= marked.end) continue;
        if (is_answer(words.message)) one.owner = words.message;
        one.last = std::min(words.span.end, marked.end);
      }
      if (one.owner >= 0) taken.push_back(one);
    }
    for (size_t i = 0; i < taken.size(); ++i) {
      const auto& [owner, span, last] = taken[i];
      const bool is_final = i + 1 == taken.size() || taken[i + 1].owner != owner;
      take(owner, span,
           is_final && !rules_.ends_turns &&
               end_of_turn(owner, last, next_given(std::max(last, span.end))).is_added);
    }
  }

  /// The assistant's message whose words end before the position, or else the first after it; -1:
  /// none.
  int32_t owner_near(size_t at) const {
    int32_t owner = -1;
    for (const MessageWords& words : words_) {
      if (is_answer(words.message) && (owner < 0 || words.span.end <= at)) owner = words.message;
    }
    return owner;
  }

  /// Inserts the missing end tokens and shifts the spans after them.
  void write_text() {
    out_.text = text_;
    std::ranges::sort(added_, std::greater<>(), &Added::at);
    const std::string& end = rules_.ends.front();
    for (const Added& each : added_) {
      out_.text.insert(each.at, end);
      for (std::vector<Span>* spans : {&out_.supervised, &out_.masked, &out_.given, &out_.images}) {
        for (Span& span : *spans) {
          if (span.begin >= each.at) span.begin += end.size();
          if (span.end > each.at) span.end += end.size();
        }
      }
      (*each.list)[each.index].end = each.at + end.size();
    }
  }

  struct Added {
    size_t at;
    std::vector<Span>* list;
    size_t index;
  };

  const Prompted& prompted_;
  const std::string_view text_;
  const SpanRules& rules_;
  const std::vector<MessageWords> words_;  // in the order of the text
  std::vector<Span> given_;  // ranges of a row's words and tools, joined where they touch
  std::vector<Added> added_;
  Rendered out_;
};

}  // namespace

std::vector<MessageWords> words_of(const jinja::Rendering& rendering,
                                   const std::vector<ValueOwner>& owners) {
  std::vector<MessageWords> words;
  std::set<int32_t> calls;
  for (const jinja::Run& run : rendering.text.runs()) {
    const ValueOwner& owner = owners.at(static_cast<size_t>(run.source));
    if (owner.field != Field::kWords) continue;
    const bool is_whole = owner.is_call && run.exact && run.offset == 0;
    if (is_whole && !calls.insert(run.source).second) continue;
    if (!words.empty() && words.back().message == owner.message)
      words.back().span.end = run.end;
    else
      words.push_back({owner.message, {run.begin, run.end}, owner.is_call});
  }
  return words;
}

Rendered prompt_of(const Prompted& prompted, const SpanRules& rules) {
  return Prompt(prompted, rules).finish();
}

}  // namespace lft::text
