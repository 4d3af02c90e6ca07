// Where a checkpoint keeps its chat template: the file that transformers 5.17's processor reads.
#pragma once
#include <optional>
#include <string>

namespace lft::text {

struct TemplateText {
  std::string text, where;  // of the file, for messages
};

/// Of a model folder, in transformers' order: "chat_template" of processor_config.json,
/// chat_template.json, chat_template.jinja with additional_chat_templates/, "chat_template" of
/// tokenizer_config.json. Of several named ones the default. kInput where transformers refuses the
/// folder. Nothing where there is none.
std::optional<TemplateText> find_template(const std::string& model_dir);

/// Whether the template asks for the date.
bool uses_date(const std::string& jinja);

/// A template's own file. kInput where it is no text of at most kMaxTemplateBytes.
TemplateText read_template(const std::string& path);
inline constexpr size_t kMaxTemplateBytes = 1u << 20;

}  // namespace lft::text
