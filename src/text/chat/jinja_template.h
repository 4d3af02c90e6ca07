// Renders a conversation with a checkpoint's chat template and classifies each byte of the prompt
// by the origins that the renderer records.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "src/io/json.h"
#include "src/text/chat/chat_template.h"
#include "src/text/chat/template_files.h"

namespace lft::text {

struct JinjaRules {
  std::vector<std::string> ends;  // tokens that end a turn; the first is added if a template ends
                                  // none
  std::string placeholder;        // the text that transformers' processor replaces for an image
  io::Json args = {};             // data.template_args: additional variables of the template
  std::string date = {};          // the date for strftime_now: "2026-11-26"
};

/// Parses the template and renders a trial conversation to find which roles take a list of parts
/// and which a text, and which token ends a turn. kInput for an invalid template, or one that
/// cannot render a conversation of a user and an assistant.
std::shared_ptr<const ChatTemplate> jinja_template(const TemplateText& source,
                                                   const Tokenizer& tokenizer,
                                                   const JinjaRules& rules);

}  // namespace lft::text
