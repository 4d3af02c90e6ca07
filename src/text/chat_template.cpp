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
  const char* system = "";        // before the first turn, where a row has none of its own
  const char* system_role = "";   // before a system text, where there is one
  const char* system_after = "";  // after it
  const char* begin = "";         // of every text
  const char* question = "";      // before the question
  const char* before_text = "";   // and this, unless the question begins with an image
  const char* answer = "";        // between question and answer, never supervised
  const char* space = "";         // before the answer, supervised with it
  const char* end = "";           // of an answer, supervised; empty: the tokenizer's end token
  const char* after = "";         // after that, not supervised
  const char* separator = "";     // between turns
  bool takes_system = true;       // a row's system text has a place
  bool system_in_turn = false;    // within the first question, not before it
  bool trims = false;             // of each text of a turn only what is between its white space
  const char* decoder = "";       // the model_type of the only decoders that are asked with it
};

constexpr Template kTemplates[] = {
    {.name = "llava-v1",
     .system = kSystem,
     .system_after = " ",
     .question = "USER: ",
     .answer = " ASSISTANT:",
     .space = " "},
    // The chat template of the llava-hf checkpoints writes a system text and a space, without a
    // name.
    {.name = "llava-hf",
     .system_after = " ",
     .question = "USER: ",
     .answer = " ASSISTANT:",
     .space = " ",
     .separator = " "},
    {.name = "plain", .takes_system = false},
    // Qwen2-VL and Qwen2.5-VL; Qwen3-VL and LLaVA-OneVision have no system text of their own.
    {.name = "chatml",
     .system = "You are a helpful assistant.",
     .system_role = "<|im_start|>system\n",
     .system_after = "<|im_end|>\n",
     .question = "<|im_start|>user\n",
     .answer = "<|im_end|>\n<|im_start|>assistant\n",
     .end = "<|im_end|>",
     .after = "\n"},
    {.name = "qwen3-vl",
     .system_role = "<|im_start|>system\n",
     .system_after = "<|im_end|>\n",
     .question = "<|im_start|>user\n",
     .answer = "<|im_end|>\n<|im_start|>assistant\n",
     .end = "<|im_end|>",
     .after = "\n"},
    // LLaVA-NeXT on Mistral.
    {.name = "mistral",
     .system_role = "<<SYS>>\n",
     .system_after = "\n<</SYS>>\n\n",
     .question = "[INST] ",
     .answer = " [/INST]",
     .space = " ",
     .separator = " ",
     .decoder = "mistral"},
    {.name = "smolvlm",
     .system_role = "System: ",
     .system_after = "<end_of_utterance>\n",
     .begin = "<|im_start|>",
     .question = "User:",
     .before_text = " ",
     .answer = "<end_of_utterance>\nAssistant:",
     .space = " ",
     .end = "<end_of_utterance>",
     .after = "\n"},
    {.name = "gemma",
     .system_after = "\n\n",
     .question = "<start_of_turn>user\n",
     .answer = "<end_of_turn>\n<start_of_turn>model\n",
     .end = "<end_of_turn>",
     .after = "\n",
     .system_in_turn = true,
     .trims = true},
};

constexpr std::string_view kImageMark = "<image>";

const Template* find(const std::string& name) {
  const auto* it = std::find_if(std::begin(kTemplates), std::end(kTemplates),
                                [&](const Template& one) { return name == one.name; });
  return it == std::end(kTemplates) ? nullptr : it;
}

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
std::string template_end(const std::string& name) { return get(name).end; }
std::string template_decoder(const std::string& name) { return get(name).decoder; }

Rendered render(const std::string& name, const std::vector<Turn>& turns, const std::string& eos,
                bool generate, const std::string& system) {
  const Template& form = get(name);
  if (!system.empty() && !form.takes_system)
    throw Error(ErrorKind::kInternal, "a system text for a template that has no place for one");
  Rendered out;
  const std::string end = *form.end == '\0' ? eos : form.end;
  const std::string before = system.empty() ? form.system : system;
  out.text = form.begin;
  const auto add_system = [&] {
    if (before.empty()) return;
    out.text += form.system_role;
    add_given(before, /*trims=*/false, out);
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
