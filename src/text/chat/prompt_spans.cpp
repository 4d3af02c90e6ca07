#include "src/text/chat/prompt_spans.h"

#include <algorithm>
#include <optional>

#include "kernels/common/error.h"
#include "src/base/errors.h"

namespace lft::text {
namespace {

using Span = Rendered::Span;
using Field = ValueOwner::Field;

/// A range of the text with one message's words, including the text that the template writes
/// between them.
struct MessageWords {
  int32_t message;
  Span span;
};

/// The end of a turn: its position, and whether the end token must be inserted there.
struct TurnEnd {
  size_t at;
  bool is_added;
};

class Prompt {
 public:
  Prompt(const jinja::Rendering& rendering, const std::vector<ValueOwner>& owners,
         const Conversation& conversation, const SpanRules& rules)
      : rendering_(rendering),
        text_(rendering.text.bytes()),
        owners_(owners),
        conversation_(conversation),
        rules_(rules) {
    for (const jinja::Run& run : rendering.text.runs()) add_run(run);
  }

  Rendered finish(bool marks_generation) {
    out_.has_bos = !rules_.bos.empty() && text_.starts_with(rules_.bos);
    find_images();
    check_answers();
    for (const Span& span : given_) out_.given.push_back(span);
    if (marks_generation)
      take_marked();
    else
      take_words();
    write_text();
    return std::move(out_);
  }

 private:
  void add_run(const jinja::Run& run) {
    const ValueOwner& owner = owners_.at(static_cast<size_t>(run.source));
    if (owner.field == Field::kNone) return;
    const Span span{run.begin, run.end};
    if (!given_.empty() && given_.back().end == span.begin)
      given_.back().end = span.end;
    else
      given_.push_back(span);
    if (owner.field != Field::kWords) return;
    if (!words_.empty() && words_.back().message == owner.message)
      words_.back().span.end = span.end;
    else
      words_.push_back({owner.message, span});
  }

  bool is_answer(int32_t message) const { return message_of(message).role == "assistant"; }
  const Message& message_of(int32_t number) const {
    return conversation_.messages.at(static_cast<size_t>(number));
  }

  /// Placeholders written by the template; the row's own words are not placeholders.
  void find_images() {
    size_t images = 0;
    for (const Message& message : conversation_.messages) images += marks_of(message).size();
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
    for (size_t i = 0; i < conversation_.messages.size(); ++i) {
      const Message& message = conversation_.messages[i];
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
    for (size_t i = 0; i < rendering_.lost.size(); ++i) {
      const ValueOwner& owner = owners_.at(static_cast<size_t>(rendering_.lost[i]));
      if (owner.message == message && owner.field == Field::kWords)
        return ", rewritten by " + rendering_.lost_by[i];
    }
    return "";
  }

  /// The end of the turn with these words, before `limit`.
  TurnEnd end_of_turn(size_t words_end, size_t limit) const {
    std::optional<size_t> first, end;
    for (const std::string& token : rules_.ends) {
      const size_t at = text_.substr(0, limit).find(token, words_end);
      if (at == std::string_view::npos || (first && at >= *first)) continue;
      first = at;
      end = at + token.size();
    }
    return end ? TurnEnd{*end, false} : TurnEnd{words_end, true};
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
    for (size_t i = 0; i < words_.size(); ++i) {
      const int32_t message = words_[i].message;
      const Span span = words_[i].span;
      if (!is_answer(message)) continue;
      const bool more =
          std::any_of(words_.begin() + static_cast<std::ptrdiff_t>(i) + 1, words_.end(),
                      [&](const MessageWords& other) { return other.message == message; });
      if (more) {
        take(message, span, false);
        continue;
      }
      const TurnEnd end = end_of_turn(span.end, next_given(span.end));
      take(message, {span.begin, end.at}, end.is_added);
    }
  }

  /// A marked range belongs to the answer whose words it contains.
  void take_marked() {
    for (const jinja::Rendering::Span& marked : rendering_.generation) {
      int32_t owner = -1;
      size_t last = marked.begin;
      for (const MessageWords& words : words_) {
        if (words.span.end <= marked.begin || words.span.begin >= marked.end) continue;
        if (is_answer(words.message)) owner = words.message;
        last = std::min(words.span.end, marked.end);
      }
      if (owner < 0) continue;
      const TurnEnd end = end_of_turn(last, next_given(std::max(last, marked.end)));
      take(owner, {marked.begin, marked.end}, end.is_added);
    }
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

  const jinja::Rendering& rendering_;
  const std::string_view text_;
  const std::vector<ValueOwner>& owners_;
  const Conversation& conversation_;
  const SpanRules& rules_;
  std::vector<Span> given_;          // ranges of a row's words and tools, joined where they touch
  std::vector<MessageWords> words_;  // words of messages, in the order of the text
  std::vector<Added> added_;
  Rendered out_;
};

}  // namespace

Rendered prompt_of(const jinja::Rendering& rendering, const std::vector<ValueOwner>& owners,
                   const Conversation& conversation, bool marks_generation,
                   const SpanRules& rules) {
  return Prompt(rendering, owners, conversation, rules).finish(marks_generation);
}

}  // namespace lft::text
