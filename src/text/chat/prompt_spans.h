// From a rendered template with origins to the spans of a prompt: what is supervised, what a row
// said, where images are, and where an end token has to be added.
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
  std::string where;  // of the template, for messages
};

/// The prompt of a conversation. Supervised of an assistant's message is what {% generation %}
/// marks, where the template has it; else its own words and what follows them up to and with the
/// token that ends the turn. Where none does, the first of the ends is added there. kInput where an
/// answer is not in the text, or the placeholders are not as many as the images.
Rendered prompt_of(const jinja::Rendering& rendering, const std::vector<ValueOwner>& owners,
                   const Conversation& conversation, bool marks_generation, const SpanRules& rules);

}  // namespace lft::text
