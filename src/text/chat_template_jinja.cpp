// A named template written down as Jinja, for transformers and the servers that read its files.
#include "src/text/chat_template.h"
#include "src/text/chat_template_form.h"

namespace lft::text {
namespace {

/// How a marker ends that whoever renders has put into a text for an image.
constexpr const char* kMarkerEnd = "__>";

/// A literal of Jinja.
std::string quoted(const std::string& text) {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\n') {
      out += "\\n";
      continue;
    }
    if (c == '\'' || c == '\\') out += '\\';
    out += c;
  }
  return out + "'";
}

std::string block(const std::string& statement) { return "{%- " + statement + " -%}\n"; }
std::string print(const std::string& expression) { return "{{- " + expression + " -}}\n"; }
std::string print_literal(const std::string& text) {
  return text.empty() ? "" : print(quoted(text));
}

/// A message's content as lft reads it from a row: a text, or parts of which an image is its mark
/// and a line's end.
std::string said_macro(const std::string& mark, const std::string& marker) {
  const auto print_text = [&](const std::string& text) {
    if (marker.empty()) return print(text);
    return print(text + " | replace(" + quoted(kMarkerEnd) + ", " +
                 quoted(std::string(kMarkerEnd) + "\n") + ") if " + quoted(marker) + " in " + text +
                 " else " + text);
  };
  return block("macro said(content)") + block("if content is string") + print_text("content") +
         block("else") + block("for part in content") + block("if part.type == 'text'") +
         print_text("part.text") + block("elif part.type in ['image', 'image_url']") +
         print(quoted(mark + "\n")) + block("else") +
         print("raise_exception('This model reads texts and images.')") + block("endif") +
         block("endfor") + block("endif") + block("endmacro");
}

std::string system_text(const TemplateForm& form) {
  const std::string given =
      form.takes_system
          ? block("set system = said(messages[0].content)")
          : block("set system = none") + block("if said(messages[0].content)") +
                print("raise_exception('This template has no place for a system text.')") +
                block("endif");
  const std::string own = *form.system == '\0' ? "none" : quoted(form.system);
  return block("if messages[0].role == 'system'") + given + block("set turns = messages[1:]") +
         block("else") + block("set system = " + own) + block("set turns = messages") +
         block("endif");
}

std::string print_system(const TemplateForm& form, const std::string& condition) {
  return block("if " + condition) +
         print(quoted(form.system_role) + " ~ system ~ " + quoted(form.system_after)) +
         block("endif");
}

std::string print_question(const TemplateForm& form, const std::string& mark,
                           const std::string& marker) {
  std::string out = block("set text = said(message.content)");
  const std::string or_marker = marker.empty() ? "" : " or text.startswith(" + quoted(marker) + ")";
  if (*form.before_text != '\0')
    out += block("if not (text.startswith(" + quoted(mark) + ")" + or_marker + ")") +
           print_literal(form.before_text) + block("endif");
  if (!form.trims) return out + print("text");
  return out + block("for piece in text.split(" + quoted(mark) + ")") + block("if not loop.first") +
         print_literal(mark) + block("endif") + print("piece | trim") + block("endfor");
}

std::string print_answer(const TemplateForm& form) {
  const std::string end = *form.end == '\0' ? "eos_token" : quoted(form.end);
  return print_literal(std::string(form.answer) + form.space) +
         print(form.trims ? "said(message.content) | trim" : "said(message.content)") + print(end) +
         print_literal(form.after);
}

}  // namespace

std::string template_jinja(const std::string& name, const std::string& image_mark,
                           const std::string& marker) {
  const TemplateForm& form = template_form(name);
  std::string out = said_macro(image_mark, marker) + system_text(form) + print_literal(form.begin);
  if (!form.system_in_turn) out += print_system(form, "system is not none");
  out += block("for message in turns") + block("if message.role == 'user'");
  if (*form.separator != '\0')
    out += block("if not loop.first") + print_literal(form.separator) + block("endif");
  out += print_literal(form.question);
  if (form.system_in_turn) out += print_system(form, "loop.first and system is not none");
  out += print_question(form, image_mark, marker) + block("elif message.role == 'assistant'") +
         print_answer(form) + block("else") +
         print("raise_exception('A turn is a user\\'s or an assistant\\'s.')") + block("endif") +
         block("endfor");
  return out + block("if add_generation_prompt") + print_literal(form.answer) + block("endif");
}

}  // namespace lft::text
