#include "src/data/chat_choice.h"

#include <algorithm>

#include "kernels/common/error.h"
#include "src/base/errors.h"
#include "src/base/text.h"
#include "src/io/files.h"
#include "src/text/chat/family_templates.h"
#include "src/text/chat/jinja_template.h"
#include "src/text/chat/named_form.h"

namespace lft::data {
namespace {

io::Json arguments(const std::string& text) {
  if (text.empty()) return io::Json::object();
  io::Json args = io::parse_json(text, "data.template_args");
  for (const char* own : {"messages", "add_generation_prompt", "tools"}) {
    if (args.is_object() && !args.contains(own)) continue;
    refuse(ErrorKind::kUsage, "a variable that the template is given anyway", "data.template_args",
           quote_text(own, 40), "other names, as {enable_thinking: false}");
  }
  return args;
}

/// The tokens that may end a turn, the one to add first.
std::vector<std::string> end_tokens(const std::string& eos, const family::ModelConfig& config,
                                    const text::Tokenizer& tokenizer) {
  std::vector<std::string> ends = {eos};
  for (const int64_t id : config.eos_tokens) {
    const std::string token = tokenizer.token_of(id);
    if (!token.empty() && std::ranges::find(ends, token) == ends.end()) ends.push_back(token);
  }
  return ends;
}

[[noreturn]] void refuse_name(const std::string& name) {
  refuse(ErrorKind::kUsage, "unknown template", "data.template", quote_text(name),
         "auto, the path of a Jinja file, or one of " + join(template_names()));
}

/// The Jinja that the setting names; its kUsage error where it is neither name nor file.
text::TemplateText named_or_file(const std::string& name, const family::Family& family) {
  if (auto found = text::family_template(name, family.processor_mark())) return *found;
  if (!io::path_exists(name) && name.find_first_of("./") == std::string::npos) refuse_name(name);
  return text::read_template(name);
}

}  // namespace

std::vector<std::string> template_names() {
  std::vector<std::string> names = text::named_forms();
  for (const std::string& name : text::family_template_names()) names.push_back(name);
  return names;
}

bool is_template_name(const std::string& name) {
  const std::vector<std::string> names = template_names();
  return std::ranges::find(names, name) != names.end();
}

std::shared_ptr<const text::ChatTemplate> choose_chat(const std::string& model_dir,
                                                      const family::ModelConfig& config,
                                                      const text::Tokenizer& tokenizer,
                                                      const family::InputSettings& settings,
                                                      const std::string& eos,
                                                      std::vector<std::string>& notices) {
  const family::Family& family = *config.family;
  const bool is_auto = settings.template_name.empty() || settings.template_name == "auto";
  std::string name = settings.template_name;
  std::optional<text::TemplateText> source;
  if (is_auto) source = text::find_template(model_dir);
  if (is_auto && !source) {
    name = family.defaults(config, io::Json::object()).template_name;
    notices.push_back("the checkpoint has no chat template: data.template " + name + ", as " +
                      family.name() + " is used");
  }
  if (!source && text::is_named_form(name))
    return text::named_form(name, eos, family.processor_mark());
  if (!source) source = named_or_file(name, family);
  auto chat = text::jinja_template(*source, tokenizer,
                                   {.ends = end_tokens(eos, config, tokenizer),
                                    .placeholder = family.placeholder(),
                                    .args = arguments(settings.template_args),
                                    .date = settings.template_date});
  for (const std::string& note : chat->notes()) notices.push_back(note);
  return chat;
}

}  // namespace lft::data
