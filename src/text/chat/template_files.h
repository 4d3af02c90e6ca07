// Finds a checkpoint's chat template: the file that the processor of transformers 5.17 reads.
#pragma once
#include <optional>
#include <string>

namespace lft::text {

struct TemplateText {
  std::string text, where;  // where: the file, for messages
};

/// The template of a model folder, in transformers' order: "chat_template" of
/// processor_config.json, chat_template.json, chat_template.jinja with additional_chat_templates/,
/// "chat_template" of tokenizer_config.json. Of several named ones the default. kInput if
/// transformers refuses the folder. Empty if there is no template.
std::optional<TemplateText> find_template(const std::string& model_dir);

/// Whether the template uses the date.
bool uses_date(const std::string& jinja);

/// Reads a template file. kInput unless it is a text of at most kMaxTemplateBytes.
TemplateText read_template(const std::string& path);
inline constexpr size_t kMaxTemplateBytes = 1u << 20;

}  // namespace lft::text
