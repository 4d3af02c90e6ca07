// Prompts of the families other than LLaVA-1.5, for checkpoints without a chat template.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "src/text/chat/template_files.h"

namespace lft::text {

/// chatml, qwen3-vl, internvl, internvl2_5, mistral, smolvlm or gemma as Jinja, which writes
/// `image_mark` for an image.
/// Empty for another name.
std::optional<TemplateText> family_template(const std::string& name, const std::string& image_mark);
std::vector<std::string> family_template_names();

}  // namespace lft::text
