#include "src/text/chat/template_trial.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "kernels/common/error.h"

namespace lft::text {
namespace {

using Field = ValueOwner::Field;

/// What the template writes after the words of a message, up to the next words of another.
struct Tail {
  std::string text;
  struct Special {
    std::string token;
    size_t end;  // in the text
  };
  std::vector<Special> special = {};
};

size_t without_blanks(std::string_view text) { return text.find_last_not_of(" \t\r\n") + 1; }

/// `last`: after an answer that ends a conversation; `inner`: before further messages. The turn
/// ends with the last token of `last` if `inner` begins with all of it; else with the last token
/// before their first difference that begins no turn, in a template that always opens the next
/// answer; else with the first token of each. A single token before further messages may begin the
/// next.
TurnEnds turn_ends(const Tail& last, const Tail& inner, const std::vector<std::string>& begins) {
  if (last.special.empty()) return {};
  const std::string_view whole = std::string_view(last.text).substr(0, without_blanks(last.text));
  const std::string& final = last.special.back().token;
  if (inner.text.starts_with(whole)) return {final, final};
  const auto common =
      static_cast<size_t>(std::ranges::mismatch(last.text, inner.text).in1 - last.text.begin());
  for (auto at = last.special.rbegin(); at != last.special.rend(); ++at) {
    if (at->end <= common && std::ranges::find(begins, at->token) == begins.end())
      return {at->token, at->token};
  }
  return {last.special.front().token, inner.special.size() > 1 ? inner.special.front().token : ""};
}

class Learner {
 public:
  Learner(const std::function<RenderedTrial(const Conversation&)>& render,
          const Tokenizer& tokenizer, const TrialForms& forms)
      : render_(render), tokenizer_(tokenizer), forms_(forms) {}

  LearnedTurns learn() const {
    const Conversation once = trial(forms_.needs_system);
    const auto answer = static_cast<int32_t>(once.messages.size()) - 1;
    const std::vector<std::string> begins = specials(around(trial(forms_.takes_system), 0).before);
    const Tail last = around(once, answer).after;
    LearnedTurns learned;
    learned.words = turn_ends(last, inner_of(once, answer, last), begins);
    learned.calls = learned.words;
    if (forms_.takes_tools) learn_calls(answer, begins, learned);
    return learned;
  }

 private:
  struct Around {
    Tail after;
    std::string before;  // the text between the previous words and those of the message
    bool has_words = false;
  };

  Around around(const Conversation& talk, int32_t number) const {
    const auto [rendering, owners] = render_(talk);
    const std::string_view text = rendering.text.bytes();
    Around found;
    size_t end = 0, previous = 0;
    for (const MessageWords& words : words_of(rendering, owners)) {
      if (words.message == number) {
        found.before = text.substr(previous, words.span.begin - previous);
        found.has_words = true;
        end = words.span.end;
      }
      previous = words.span.end;
    }
    size_t limit = text.size();
    for (const jinja::Run& run : rendering.text.runs()) {
      const ValueOwner& owner = owners.at(static_cast<size_t>(run.source));
      if (owner.field != Field::kNone && run.begin >= end)
        limit = std::min<size_t>(limit, run.begin);
    }
    found.after.text = text.substr(end, limit - end);
    for (const Token& token : tokenizer_.encode(text)) {
      if (token.begin >= end && token.begin < limit && is_written(token))
        found.after.special.push_back({tokenizer_.token_of(token.id), token.end - end});
    }
    return found;
  }

  /// A special token of the text, which the tokenizer has not added.
  bool is_written(const Token& token) const {
    return token.begin < token.end && tokenizer_.is_special(token.id);
  }

  std::vector<std::string> specials(const std::string& text) const {
    std::vector<std::string> found;
    for (const Token& token : tokenizer_.encode(text)) {
      if (is_written(token)) found.push_back(tokenizer_.token_of(token.id));
    }
    return found;
  }

  /// What is between two answers' turns; `last` if the template refuses two.
  Tail inner_of(const Conversation& once, int32_t answer, const Tail& last) const {
    Conversation twice = once;
    twice.messages.insert(twice.messages.end(), once.messages.end() - 2, once.messages.end());
    try {
      return around(twice, answer).after;
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kInput) throw;
      return last;
    }
  }

  /// A conversation that the template cannot render is refused when a row has it.
  void learn_calls(int32_t calling, const std::vector<std::string>& begins,
                   LearnedTurns& learned) const {
    try {
      const Conversation silent = tool_trial(forms_.needs_system, "");
      const Around inner = around(silent, calling);
      if (!inner.has_words) return;  // the template does not write tool calls
      const Around last = around(first_messages(silent, static_cast<size_t>(calling) + 1), calling);
      learned.calls = turn_ends(last.after, inner.after, begins);
      const std::string between =
          between_words_and_call(tool_trial(forms_.needs_system, "trialsaid"), calling);
      const auto differ = std::mismatch(between.rbegin(), between.rend(), inner.before.rbegin(),
                                        inner.before.rend());
      const std::string opening =
          between.substr(static_cast<size_t>(between.rend() - differ.first));
      learned.opening =
          opening.substr(std::min(opening.find_first_not_of(" \t\r\n"), opening.size()));
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kInput) throw;
    }
  }

  /// The text between the content of a message and the first value of its tool call.
  std::string between_words_and_call(const Conversation& talk, int32_t number) const {
    const auto [rendering, owners] = render_(talk);
    size_t end = 0;
    for (const jinja::Run& run : rendering.text.runs()) {
      const ValueOwner& owner = owners.at(static_cast<size_t>(run.source));
      if (owner.message != number || owner.field != Field::kWords) continue;
      if (owner.is_call && end == 0) return "";
      if (owner.is_call) return std::string(rendering.text.bytes().substr(end, run.begin - end));
      end = run.end;
    }
    return "";
  }

  const std::function<RenderedTrial(const Conversation&)>& render_;
  const Tokenizer& tokenizer_;
  const TrialForms& forms_;
};

}  // namespace

Conversation trial(bool with_system) {
  Conversation talk;
  if (with_system) talk.messages.push_back({.role = "system", .text = "trialsystem"});
  talk.messages.push_back({.role = "user", .text = "trialquestion"});
  talk.messages.push_back({.role = "assistant", .text = "trialanswer"});
  return talk;
}

Conversation tool_trial(bool with_system, const std::string& text) {
  Conversation talk = trial(with_system);
  talk.tools = R"([{"type": "function", "function": {"name": "trialtool", "description": "d",
      "parameters": {"type": "object", "properties": {"x": {"type": "string",
      "description": "d"}}, "required": ["x"]}}}])";
  const Message calls{
      .role = "assistant", .text = text, .tool_calls = R"([{"type": "function", "id": "trial0000",
      "function": {"name": "trialtool", "arguments": {"x": "y"}}}])"};
  const Message result{
      .role = "tool", .text = "trialresult", .tool_call_id = "trial0000", .name = "trialtool"};
  talk.messages.insert(talk.messages.end() - 1, {calls, result});
  return talk;
}

Conversation first_messages(const Conversation& whole, size_t count) {
  Conversation first = whole;
  first.messages.resize(count);
  return first;
}

std::string call_tail(const RenderedTrial& conversation, int32_t number) {
  const std::string_view text = conversation.rendering.text.bytes();
  size_t end = text.size();
  for (const MessageWords& words : words_of(conversation.rendering, conversation.owners)) {
    if (words.message == number) end = words.span.end;
  }
  return std::string(text.substr(end, std::max(end, without_blanks(text)) - end));
}

LearnedTurns learn_turns(const std::function<RenderedTrial(const Conversation&)>& render,
                         const Tokenizer& tokenizer, const TrialForms& forms) {
  return Learner(render, tokenizer, forms).learn();
}

}  // namespace lft::text
