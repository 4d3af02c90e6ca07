// Converts a rendered template with origins to the spans of a prompt: supervised text, text of the
// row, images, and missing end tokens.
#pragma once
#include <string>
#include <vector>

#include "src/text/chat/chat_template.h"
#include "src/text/chat/template_input.h"
#include "src/text/jinja/template.h"

namespace lft::text {

struct SpanRules {
  std::vector<std::string> ends;  // as in JinjaRules
  std::string placeholder, bos;
  std::string where;  // origin of the template, for messages
};

/// The prompt of a conversation. In an assistant's message the text inside {% generation %} is
/// supervised if the template has it; else the message's own words and the text after them,
/// including the token that ends the turn. If there is none, the first of the ends is inserted.
/// kInput if an answer is not in the text, or the numbers of placeholders and images differ.
Rendered prompt_of(const jinja::Rendering& rendering, const std::vector<ValueOwner>& owners,
                   const Conversation& conversation, bool marks_generation, const SpanRules& rules);

}  // namespace lft::text
