#include "src/text/chat/named_form.h"

#include <algorithm>

#include "kernels/common/error.h"
#include "src/base/errors.h"
#include "src/base/hash.h"
#include "src/base/text.h"

namespace lft::text {
namespace {

constexpr const char* kSystem =
    "A chat between a curious user and an artificial intelligence assistant. The assistant gives "
    "helpful, detailed, and polite answers to the user's questions.";

/// The fixed texts around a question and its answer.
struct Form {
  const char* name;
  const char* system = "";        // before the first turn, if a row has no system text
  const char* system_after = "";  // after it
  const char* question = "";      // before the question
  const char* answer = "";        // between question and answer, never supervised
  const char* space = "";         // before the answer, supervised with it
  const char* separator = "";     // between turns
  bool takes_system = true;       // a row's system text is supported
};

constexpr Form kForms[] = {
    {.name = "llava-v1",
     .system = kSystem,
     .system_after = " ",
     .question = "USER: ",
     .answer = " ASSISTANT:",
     .space = " "},
    // The template of the llava-hf checkpoints writes a system text and a space, without a name.
    {.name = "llava-hf",
     .system_after = " ",
     .question = "USER: ",
     .answer = " ASSISTANT:",
     .space = " ",
     .separator = " "},
    {.name = "plain", .takes_system = false},
};

const Form* find_form(const std::string& name) {
  const auto* it = std::ranges::find(kForms, name, &Form::name);
  return it == std::end(kForms) ? nullptr : it;
}

const Form& form_of(const std::string& name) {
  if (const Form* found = find_form(name)) return *found;
  refuse(ErrorKind::kUsage, "unknown template", {}, name, join(named_forms()),
         "name one of them in data.template or --template");
}

/// Appends a text of the row. Its image marks become placeholders.
void add_given(const Message& message, Rendered& out) {
  const size_t start = out.text.size();
  size_t from = 0;
  const auto add_words = [&](size_t until) {
    if (until > from) out.given.push_back({start + from, start + until});
  };
  for (const size_t mark : marks_of(message)) {
    add_words(mark);
    from = mark + kImageMark.size();
    out.images.push_back({start + mark, start + from});
  }
  add_words(message.text.size());
  out.text += message.text;
}

void check_place(const Form& form, const Conversation& conversation) {
  const auto refuse_part = [&](const std::string& what, const std::string& found) {
    refuse(
        ErrorKind::kInput, what + ", for which the template has no place", {},
        quote_text(found, 80) + ", template " + form.name,
        std::string("a template with a place for it: llava-v1, llava-hf (a system text), or a ") +
            "chat template",
        "set data.template to one of them; auto is the chat template of the checkpoint");
  };
  const std::string* system = system_of(conversation.messages);
  if (system != nullptr && !is_blank_text(*system) && !form.takes_system)
    refuse_part("a system text", *system);
  if (!conversation.tools.empty()) refuse_part("tools", conversation.tools);
  for (const Message& message : conversation.messages) {
    if (message.role == "system" && &message != conversation.messages.data())
      refuse_part("a system text after the first message", message.text);
    if (message.role == "tool") refuse_part("a tool's message", message.text);
    if (!message.tool_calls.empty()) refuse_part("tool calls", message.tool_calls);
    if (!message.reasoning.empty()) refuse_part("reasoning", message.reasoning);
  }
}

class NamedForm : public ChatTemplate {
 public:
  NamedForm(const Form& form, std::string end, std::string image_mark)
      : form_(form), end_(std::move(end)), image_mark_(std::move(image_mark)) {}

  Rendered render(const Conversation& conversation, bool generate) const override {
    check_place(form_, conversation);
    Rendered out;
    const std::vector<Message>& messages = conversation.messages;
    const bool has_system = system_of(messages) != nullptr;
    if (form_.takes_system && (has_system || *form_.system != '\0')) {
      add_given(has_system ? messages[0] : Message{.role = "system", .text = form_.system}, out);
      out.text += form_.system_after;
    }
    const size_t first = has_system ? 1 : 0;
    for (size_t i = first; i < messages.size(); ++i) {
      if (messages[i].role == "user") {
        if (i > first) out.text += form_.separator;
        out.text += form_.question;
        add_given(messages[i], out);
      } else {
        add_answer(messages[i], out);
      }
    }
    if (generate) out.text += form_.answer;
    return out;
  }

  std::string hash() const override {
    const Conversation example{
        messages_of({{"<image>\nWhat is this?", "A cat."}, {"Are you sure?", "Yes."}})};
    const Rendered rendered = NamedForm(form_, "</s>", image_mark_).render(example, false);
    std::string text = rendered.text;
    for (const Rendered::Span& span : rendered.supervised)
      text += "\n" + std::to_string(span.begin) + "-" + std::to_string(span.end);
    return sha256(text);
  }
  std::string jinja() const override { return named_form_jinja(form_.name, image_mark_); }
  std::string end() const override { return end_; }
  std::string name() const override { return form_.name; }
  bool bare_placeholders() const override { return false; }

 private:
  void add_answer(const Message& message, Rendered& out) const {
    out.text += form_.answer;
    const size_t begin = out.text.size();
    out.text += form_.space;
    add_given(message, out);
    out.text += end_;
    (message.learnt ? out.supervised : out.masked).push_back({begin, out.text.size()});
  }

  const Form& form_;
  std::string end_, image_mark_;
};

/// A string literal in Jinja.
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

/// A message's content: a text, or parts, in which an image is its mark and a newline.
std::string said_macro(const std::string& mark, const std::string& marker) {
  const std::string close = "__>";
  const auto print_text = [&](const std::string& text) {
    if (marker.empty()) return print(text);
    return print(text + " | replace(" + quoted(close) + ", " + quoted(close + "\n") + ") if " +
                 quoted(marker) + " in " + text + " else " + text);
  };
  return block("macro said(content)") + block("if content is string") + print_text("content") +
         block("else") + block("for part in content") + block("if part.type == 'text'") +
         print_text("part.text") + block("elif part.type in ['image', 'image_url']") +
         print(quoted(mark + "\n")) + block("else") +
         print("raise_exception('This model reads texts and images.')") + block("endif") +
         block("endfor") + block("endif") + block("endmacro");
}

std::string system_text(const Form& form) {
  const std::string given =
      form.takes_system
          ? block("set system = said(messages[0].content)")
          : block("set system = none") + block("if said(messages[0].content)") +
                print("raise_exception('This template has no place for a system text.')") +
                block("endif");
  const std::string own = *form.system == '\0' ? "none" : quoted(form.system);
  return block("if messages[0].role == 'system'") + given + block("set turns = messages[1:]") +
         block("else") + block("set system = " + own) + block("set turns = messages") +
         block("endif") + block("if system is not none") +
         print("system ~ " + quoted(form.system_after)) + block("endif");
}

}  // namespace

bool is_named_form(const std::string& name) { return find_form(name) != nullptr; }

std::vector<std::string> named_forms() {
  std::vector<std::string> names;
  for (const Form& one : kForms) names.emplace_back(one.name);
  return names;
}

std::shared_ptr<const ChatTemplate> named_form(const std::string& name, const std::string& end,
                                               const std::string& image_mark) {
  return std::make_shared<NamedForm>(form_of(name), end, image_mark);
}

std::string named_form_jinja(const std::string& name, const std::string& image_mark,
                             const std::string& marker) {
  const Form& form = form_of(name);
  std::string out = said_macro(image_mark, marker) + system_text(form) +
                    block("for message in turns") + block("if message.role == 'user'");
  if (*form.separator != '\0')
    out += block("if not loop.first") + print_literal(form.separator) + block("endif");
  return out + print_literal(form.question) + print("said(message.content)") +
         block("elif message.role == 'assistant'") +
         print_literal(std::string(form.answer) + form.space) + print("said(message.content)") +
         print("eos_token") + block("else") +
         print("raise_exception('A turn is a user\\'s or an assistant\\'s.')") + block("endif") +
         block("endfor") + block("if add_generation_prompt") + print_literal(form.answer) +
         block("endif");
}

}  // namespace lft::text
