// Named prompt templates: turns to one string, with the byte ranges that are supervised. No Jinja
// is ever run, but each template is written as Jinja for those who do.
#pragma once
#include <optional>
#include <string>
#include <vector>

namespace lft::text {

struct Turn {
  std::string question, answer;  // the user's text holds "<image>" where the data has it; the last
                                 // answer may be empty (to generate)
  bool learnt = true;            // false: the answer is read, and not supervised
};
struct Rendered {
  std::string text;
  struct Span {
    size_t begin, end;
  };
  std::vector<Span> supervised;  // answer with the space before it and its end token
  std::vector<Span> masked;      // the same of answers that are not learnt
  std::vector<Span> given;       // what the turns and the system text say, without image marks
};

bool is_template(const std::string& name);  // llava-v1, chatml, ...
std::vector<std::string> template_names();
bool takes_system(const std::string& name);  // whether a row's own system text has a place in it
/// The token that ends an answer; empty: the tokenizer's end token.
std::string template_end(const std::string& name);
/// The model_type of the only decoders that are asked with it; empty: of any.
std::string template_decoder(const std::string& name);
/// `eos` is the tokenizer's end token text ("</s>"), for templates without one of their own. With
/// `generate`, the last turn stops after "ASSISTANT:". A `system` text, which may be empty, takes
/// the place of the template's own.
Rendered render(const std::string& name, const std::vector<Turn>& turns, const std::string& eos,
                bool generate = false, const std::optional<std::string>& system = std::nullopt);
std::string template_hash(const std::string& name);  // sha256 of one rendered example
/// The template as a chat_template.jinja that gives render()'s text for messages of roles system,
/// user and assistant. An image part becomes `image_mark`, which transformers' processor replaces,
/// and a line's end, as in rows of messages. The end token is the tokenizer's `eos_token`. Where
/// `marker` is given, a text may show an image as `marker`, more, and "__>", put there by whoever
/// renders; it gets its line's end too.
std::string template_jinja(const std::string& name, const std::string& image_mark,
                           const std::string& marker = "");

}  // namespace lft::text
