// A checkpoint's chat template over a conversation: what each byte of the prompt is, from the
// origins that the renderer keeps.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "src/io/json.h"
#include "src/text/chat/chat_template.h"
#include "src/text/chat/template_files.h"

namespace lft::text {

struct JinjaRules {
  std::vector<std::string> ends;  // tokens that end a turn; the first is added where a template
                                  // ends none
  std::string placeholder;        // what transformers' processor replaces for an image
  io::Json args = {};             // data.template_args: more names for the template
  std::string date = {};          // what strftime_now formats: "2026-11-26"
};

/// Parses the template and renders a trial conversation with it: which roles take a list of parts
/// and which a text, and with which token it ends a turn. kInput where the template is none, or
/// renders no conversation of a user and an assistant.
std::shared_ptr<const ChatTemplate> jinja_template(const TemplateText& source,
                                                   const Tokenizer& tokenizer,
                                                   const JinjaRules& rules);

}  // namespace lft::text
