#include "src/text/chat/family_templates.h"

#include <algorithm>

namespace lft::text {
namespace {

struct Named {
  const char *name, *jinja;
};

// MARK is the image mark. One macro prints both texts and parts.
constexpr const char* kSaid = R"({%- macro said(content) -%}
{%- if content is string -%}{{- content -}}{%- else -%}
{%- for part in content -%}
{%- if part.type == 'text' -%}{{- part.text -}}{%- else -%}{{- 'MARK' -}}{%- endif -%}
{%- endfor -%}{%- endif -%}{%- endmacro -%}
)";

constexpr const char* kChatml = R"({%- for message in messages -%}
{{- '<|im_start|>' ~ message.role ~ '\n' -}}{{- said(message.content) -}}{{- '<|im_end|>\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\n' -}}{%- endif -%})";

constexpr const char* kChatmlSystem = R"({%- if messages[0].role != 'system' -%}
{{- '<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n' -}}{%- endif -%}
)";

/// The system text of the conversation "internvl2_5" in InternVL's own code.
constexpr const char* kInternSystem =
    "{%- if messages[0].role != 'system' -%}\n"
    "{{- '<|im_start|>system\\n"
    "你是书生·万象，英文名是InternVL，"
    "是由上海人工智能实验室、清华大学及多家合作单位"
    "联合开发的多模态大语言模型。"
    "<|im_end|>\\n' -}}{%- endif -%}\n";

constexpr const char* kMistral = R"({%- for message in messages -%}
{%- if message.role == 'system' -%}{{- '<<SYS>>\n' -}}{{- said(message.content) -}}
{{- '\n<</SYS>>\n\n' -}}
{%- elif message.role == 'user' -%}{{- '[INST] ' -}}{{- said(message.content) -}}{{- ' [/INST]' -}}
{%- else -%}{{- ' ' -}}{{- said(message.content) -}}{{- eos_token -}}
{%- if not loop.last -%}{{- ' ' -}}{%- endif -%}{%- endif -%}{%- endfor -%})";

constexpr const char* kSmolvlm = R"({{- '<|im_start|>' -}}{%- for message in messages -%}
{{- message.role | capitalize -}}
{{- ':' if message.content is not string and message.content[0].type == 'image' else ': ' -}}
{{- said(message.content) -}}{{- '<end_of_utterance>\n' -}}{%- endfor -%}
{%- if add_generation_prompt -%}{{- 'Assistant:' -}}{%- endif -%})";

constexpr const char* kGemma = R"({%- set ns = namespace(system='') -%}
{%- for message in messages -%}
{%- if message.role == 'system' -%}{%- set ns.system = said(message.content) ~ '\n\n' -%}
{%- else -%}
{{- '<start_of_turn>' ~ ('model' if message.role == 'assistant' else 'user') ~ '\n' -}}
{{- ns.system -}}{%- set ns.system = '' -%}
{%- if message.content is string -%}{{- message.content | trim -}}{%- else -%}
{%- for part in message.content -%}
{%- if part.type == 'text' -%}{{- part.text | trim -}}{%- else -%}{{- 'MARK' -}}{%- endif -%}
{%- endfor -%}{%- endif -%}{{- '<end_of_turn>\n' -}}{%- endif -%}{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<start_of_turn>model\n' -}}{%- endif -%})";

constexpr Named kTemplates[] = {
    {"chatml", kChatml},   {"qwen3-vl", kChatml}, {"internvl", kChatml}, {"internvl2_5", kChatml},
    {"mistral", kMistral}, {"smolvlm", kSmolvlm}, {"gemma", kGemma}};

}  // namespace

std::optional<TemplateText> family_template(const std::string& name,
                                            const std::string& image_mark) {
  const auto* const found = std::ranges::find(kTemplates, name, &Named::name);
  if (found == std::end(kTemplates)) return std::nullopt;
  std::string text = kSaid;
  if (name == "chatml") text += kChatmlSystem;
  if (name == "internvl2_5") text += kInternSystem;
  text += found->jinja;
  const std::string mark = image_mark + (name.starts_with("internvl") ? "\\n" : "");
  for (size_t at = text.find("MARK"); at != std::string::npos; at = text.find("MARK", at + 1))
    text.replace(at, 4, mark);
  return TemplateText{.text = std::move(text), .where = "template " + name};
}

std::vector<std::string> family_template_names() {
  std::vector<std::string> names;
  for (const Named& each : kTemplates) names.emplace_back(each.name);
  return names;
}

}  // namespace lft::text
