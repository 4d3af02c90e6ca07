#include "src/text/chat_template.h"

#include <algorithm>

#include "kernels/common/error.h"
#include "src/base/hash.h"
#include "src/base/text.h"

namespace lft::text {
namespace {

constexpr const char* kSystem =
    "A chat between a curious user and an artificial intelligence assistant. The assistant gives "
    "helpful, detailed, and polite answers to the user's questions.";

/// What stands around a question and its answer.
struct Template {
  const char* name;
  const char* system;     // before the first turn, with the space that follows it
  const char* question;   // before the question
  const char* answer;     // between question and answer, never supervised
  const char* space;      // before the answer, supervised with it
  const char* separator;  // between turns
  bool takes_system;      // a row's system text comes in the place of `system`
};

constexpr Template kTemplates[] = {
    {"llava-v1", kSystem, "USER: ", " ASSISTANT:", " ", "", true},
    // The chat template of the llava-hf checkpoints writes a system text and a space, without a
    // name.
    {"llava-hf", "", "USER: ", " ASSISTANT:", " ", " ", true},
    {"plain", "", "", "", "", "", false},
};

const Template* find(const std::string& name) {
  const auto* it = std::find_if(std::begin(kTemplates), std::end(kTemplates),
                                [&](const Template& one) { return name == one.name; });
  return it == std::end(kTemplates) ? nullptr : it;
}

const Template& get(const std::string& name) {
  if (const Template* found = find(name)) return *found;
  refuse(ErrorKind::kUsage, "unknown template", {}, name, join(template_names()),
         "name one of them in data.template or --template");
}

}  // namespace

bool is_template(const std::string& name) { return find(name) != nullptr; }

std::vector<std::string> template_names() {
  std::vector<std::string> names;
  for (const Template& one : kTemplates) names.push_back(one.name);
  return names;
}

bool takes_system(const std::string& name) { return get(name).takes_system; }

Rendered render(const std::string& name, const std::vector<Turn>& turns, const std::string& eos,
                bool generate, const std::string& system) {
  const Template& form = get(name);
  if (!system.empty() && !form.takes_system)
    throw Error(ErrorKind::kInternal, "a system text for a template that has no place for one");
  Rendered out;
  out.text = system.empty() ? form.system : system;
  if (!out.text.empty()) out.text += ' ';
  for (size_t i = 0; i < turns.size(); ++i) {
    if (i > 0) out.text += form.separator;
    out.text += form.question + turns[i].question + form.answer;
    if (generate && i + 1 == turns.size()) break;
    const size_t begin = out.text.size();
    out.text += form.space + turns[i].answer + eos;
    (turns[i].learnt ? out.supervised : out.masked).push_back({begin, out.text.size()});
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
