#include "src/text/chat_template.h"

#include <algorithm>

#include "kernels/common/error.h"
#include "src/base/hash.h"
#include "src/base/text.h"
#include "src/text/chat_template_form.h"

namespace lft::text {
namespace {

constexpr std::string_view kImageMark = "<image>";

/// What Python's str.strip() leaves, which is Jinja's trim.
std::string_view trimmed(std::string_view text) {
  static constexpr std::string_view kSpaces[] = {" ",
                                                 "\t",
                                                 "\n",
                                                 "\v",
                                                 "\f",
                                                 "\r",
                                                 "\x1c",
                                                 "\x1d",
                                                 "\x1e",
                                                 "\x1f",
                                                 "\xC2\x85",
                                                 "\xC2\xA0",
                                                 "\xE1\x9A\x80",
                                                 "\xE2\x80\x80",
                                                 "\xE2\x80\x81",
                                                 "\xE2\x80\x82",
                                                 "\xE2\x80\x83",
                                                 "\xE2\x80\x84",
                                                 "\xE2\x80\x85",
                                                 "\xE2\x80\x86",
                                                 "\xE2\x80\x87",
                                                 "\xE2\x80\x88",
                                                 "\xE2\x80\x89",
                                                 "\xE2\x80\x8A",
                                                 "\xE2\x80\xA8",
                                                 "\xE2\x80\xA9",
                                                 "\xE2\x80\xAF",
                                                 "\xE2\x81\x9F",
                                                 "\xE3\x80\x80"};
  for (bool more = true; more;) {
    more = false;
    for (const std::string_view space : kSpaces) {
      if (text.starts_with(space)) {
        text.remove_prefix(space.size());
        more = true;
      }
      if (text.ends_with(space)) {
        text.remove_suffix(space.size());
        more = true;
      }
    }
  }
  return text;
}

/// Appends a text of the data; its image marks are the template's, not the text's.
void add_given(std::string_view text, bool trims, Rendered& out) {
  while (!text.empty()) {
    const size_t mark = std::min(text.find(kImageMark), text.size());
    const std::string_view words = trims ? trimmed(text.substr(0, mark)) : text.substr(0, mark);
    if (!words.empty()) out.given.push_back({out.text.size(), out.text.size() + words.size()});
    out.text += words;
    const size_t after = std::min(mark + kImageMark.size(), text.size());
    out.text += text.substr(mark, after - mark);
    text.remove_prefix(after);
  }
}

}  // namespace

bool takes_system(const std::string& name) { return template_form(name).takes_system; }
std::string template_end(const std::string& name) { return template_form(name).end; }
std::string template_decoder(const std::string& name) { return template_form(name).decoder; }

Rendered render(const std::string& name, const std::vector<Turn>& turns, const std::string& eos,
                bool generate, const std::optional<std::string>& system) {
  const TemplateForm& form = template_form(name);
  if (system && !is_blank_text(*system) && !form.takes_system)
    throw Error(ErrorKind::kInternal, "a system text for a template that has no place for one");
  Rendered out;
  const std::string end = *form.end == '\0' ? eos : form.end;
  const bool says = form.takes_system && (system || *form.system != '\0');
  out.text = form.begin;
  const auto add_system = [&] {
    if (!says) return;
    out.text += form.system_role;
    add_given(system ? *system : form.system, /*trims=*/false, out);
    out.text += form.system_after;
  };
  if (!form.system_in_turn) add_system();
  for (size_t i = 0; i < turns.size(); ++i) {
    if (i > 0) out.text += form.separator;
    out.text += form.question;
    if (i == 0 && form.system_in_turn) add_system();
    if (!turns[i].question.starts_with(kImageMark)) out.text += form.before_text;
    add_given(turns[i].question, form.trims, out);
    out.text += form.answer;
    if (generate && i + 1 == turns.size()) break;
    const size_t begin = out.text.size();
    out.text += form.space;
    add_given(turns[i].answer, form.trims, out);
    out.text += end;
    (turns[i].learnt ? out.supervised : out.masked).push_back({begin, out.text.size()});
    out.text += form.after;
  }
  return out;
}

std::string template_hash(const std::string& name) {
  const Rendered example =
      render(name, {{"<image>\nWhat is this?", "A cat."}, {"Are you sure?", "Yes."}}, "</s>");
  std::string text = example.text;
  for (const Rendered::Span& span : example.supervised)
    text += "\n" + std::to_string(span.begin) + "-" + std::to_string(span.end);
  return sha256(text);
}

}  // namespace lft::text
