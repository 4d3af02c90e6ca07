// LLaVA's prompts by name: llava-v1 as in LLaVA's own code, llava-hf as for the llava-hf
// checkpoints, plain for image-caption pairs. A row's text is used unchanged.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "src/text/chat/chat_template.h"

namespace lft::text {

bool is_named_form(const std::string& name);
std::vector<std::string> named_forms();
/// `end` is the token that ends an answer. `image_mark` is the text that transformers' processor of
/// the family replaces. kUsage for an unknown name.
std::shared_ptr<const ChatTemplate> named_form(const std::string& name, const std::string& end,
                                               const std::string& image_mark);
/// The form as Jinja. An image part becomes `image_mark` and a newline, as in rows of messages. If
/// `marker` is given, a text may contain an image as `marker`, more, and "__>", which llama.cpp's
/// server inserts; a newline follows it too.
std::string named_form_jinja(const std::string& name, const std::string& image_mark,
                             const std::string& marker = "");

}  // namespace lft::text
