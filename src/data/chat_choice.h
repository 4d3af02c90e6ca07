// Which chat template a model's rows are rendered with.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "models/family/family.h"
#include "models/family/input_settings.h"
#include "src/text/chat/chat_template.h"

namespace lft::data {

/// What data.template and --template may name besides files.
std::vector<std::string> template_names();
bool is_template_name(const std::string& name);  // of a form or a family's template; not auto

/// "auto": the chat template that comes with the checkpoint, else the family's own by name, which
/// `notices` tells. A name: LLaVA's form or a family's template. Anything else: a file of Jinja.
/// `eos` ends an answer where the template ends none. kUsage for a bad setting, kInput for a bad
/// template.
std::shared_ptr<const text::ChatTemplate> choose_chat(const std::string& model_dir,
                                                      const family::ModelConfig& config,
                                                      const text::Tokenizer& tokenizer,
                                                      const family::InputSettings& settings,
                                                      const std::string& eos,
                                                      std::vector<std::string>& notices);

}  // namespace lft::data
