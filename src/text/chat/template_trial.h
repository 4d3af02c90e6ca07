// Trial conversations, and what a chat template writes around their words.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "src/text/chat/conversation.h"
#include "src/text/chat/prompt_spans.h"
#include "src/text/chat/template_input.h"
#include "src/text/jinja/template.h"
#include "src/text/tokenizer.h"

namespace lft::text {

/// A question and an answer, perhaps after a system text, whose words can be found in the output of
/// a template.
Conversation trial(bool with_system);
/// The same with a tool's message after an answer that calls the tool and contains `text`.
Conversation tool_trial(bool with_system, const std::string& text);
Conversation first_messages(const Conversation& whole, size_t count);

struct RenderedTrial {
  jinja::Rendering rendering;
  std::vector<ValueOwner> owners;
};

/// Which trials the template can render.
struct TrialForms {
  bool takes_system, needs_system, takes_tools;
};

struct LearnedTurns {
  TurnEnds words, calls;
  std::string opening;  // as in SpanRules
};

/// The text after the words of the last message of a conversation, without blanks at its end.
std::string call_tail(const RenderedTrial& conversation, int32_t number);

/// `words.last` is empty if the template ends no turn.
LearnedTurns learn_turns(const std::function<RenderedTrial(const Conversation&)>& render,
                         const Tokenizer& tokenizer, const TrialForms& forms);

}  // namespace lft::text
