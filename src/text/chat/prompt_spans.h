// Converts a rendered template with origins to the spans of a prompt: supervised text, text of the
// row, images, and missing end tokens.
#pragma once
#include <string>
#include <vector>

#include "src/text/chat/chat_template.h"
#include "src/text/chat/template_input.h"
#include "src/text/jinja/template.h"

namespace lft::text {

/// A range of the text with one message's own words, including the text that the template writes
/// between them. A value of a tool call that is printed again after others, as in the header of the
/// tool's message, is not among them.
struct MessageWords {
  int32_t message;
  Rendered::Span span;
  bool begins_with_call;
};
std::vector<MessageWords> words_of(const jinja::Rendering& rendering,
                                   const std::vector<ValueOwner>& owners);

/// The token that ends an answer's turn; empty: unknown.
struct TurnEnds {
  std::string last;   // at the end of a conversation
  std::string inner;  // before further messages
};

struct SpanRules {
  std::vector<std::string> ends;  // tokens that may end a turn, if the expected one is missing. The
                                  // first is inserted by a template that ends no turn
  std::string placeholder, bos;
  std::string where;  // origin of the template, for messages
  bool ends_turns = true;
  TurnEnds words = {}, calls = {};  // of answers without and with tool calls
  std::string opening =
      {};  // the text before the first value of a tool call that belongs to the call
};

/// What the template renders of a conversation.
struct Prompted {
  const jinja::Rendering& rendering;
  const std::vector<ValueOwner>& owners;
  const Conversation& conversation;
  bool marks_generation;
  /// For a template that ends no turn: the texts that follow the words of messages with tool calls
  /// and belong to them, by message.
  std::vector<std::string> call_tails = {};
};

/// The prompt of a conversation. In an assistant's message the text inside {% generation %} is
/// supervised if the template has it; else the message's own words and the text after them,
/// including the token that ends the turn. A template that ends no turn gets the first of the ends.
/// kInput if an answer is not in the text, or the numbers of placeholders and images differ.
Rendered prompt_of(const Prompted& prompted, const SpanRules& rules);

}  // namespace lft::text
