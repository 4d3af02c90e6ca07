#include "src/text/chat_template_form.h"

#include <algorithm>

#include "kernels/common/error.h"
#include "src/base/text.h"
#include "src/text/chat_template.h"

namespace lft::text {
namespace {

constexpr const char* kSystem =
    "A chat between a curious user and an artificial intelligence assistant. The assistant gives "
    "helpful, detailed, and polite answers to the user's questions.";

constexpr TemplateForm kTemplates[] = {
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

const TemplateForm* find_form(const std::string& name) {
  const auto* it = std::find_if(std::begin(kTemplates), std::end(kTemplates),
                                [&](const TemplateForm& one) { return name == one.name; });
  return it == std::end(kTemplates) ? nullptr : it;
}

}  // namespace

const TemplateForm& template_form(const std::string& name) {
  if (const TemplateForm* found = find_form(name)) return *found;
  refuse(ErrorKind::kUsage, "unknown template", {}, name, join(template_names()),
         "name one of them in data.template or --template");
}

bool is_template(const std::string& name) { return find_form(name) != nullptr; }

std::vector<std::string> template_names() {
  std::vector<std::string> names;
  for (const TemplateForm& one : kTemplates) names.emplace_back(one.name);
  return names;
}

}  // namespace lft::text
