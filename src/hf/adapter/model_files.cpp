#include "src/hf/adapter/model_files.h"

#include <nlohmann/json.hpp>

#include "src/hf/adapter/adapter_files.h"
#include "src/hf/adapter/adapter_notes.h"
#include "src/hf/weights.h"
#include "src/hf/weights_side_files.h"
#include "src/io/files.h"
#include "src/text/chat/family_templates.h"
#include "src/text/chat/named_form.h"

namespace lft::hf {
namespace {

constexpr const char* kTemplateKey = "chat_template";
constexpr const char* kNested = "image_processor";  // key in processor_config.json

/// The JSON object in the file; null if there is no file.
io::Json read_object(const std::string& path) {
  return io::path_exists(path) ? io::read_json_file(path) : io::Json();
}

bool has_nested(const io::Json& whole) {
  return whole.is_object() && whole.contains(kNested) && whole[kNested].is_object();
}

/// Removes a template's older locations, which transformers would read first.
void write_template(const std::string& dir, const std::string& jinja) {
  io::write_file_atomic(dir + "/" + kChatTemplate, jinja);
  for (const char* other : {"/chat_template.json", "/additional_chat_templates"})
    io::remove_tree(dir + other);
  for (const char* name : {"tokenizer_config.json", "processor_config.json"}) {
    io::Json file = read_object(dir + "/" + name);
    if (!file.is_object() || file.erase(kTemplateKey) == 0) continue;
    io::write_file_atomic(dir + "/" + name, pretty_json(file));
  }
}

/// Both files may contain an image processor; a file that already has the fit is
/// unchanged.
void write_fit(const std::string& dir, const family::ModelConfig& config,
               const family::ImageRules& rules) {
  const std::string unified = dir + "/processor_config.json",
                    own = dir + "/preprocessor_config.json";
  const io::Json whole = read_object(unified);
  const bool nested = has_nested(whole);
  if (nested) {
    io::Json changed = whole;
    changed[kNested] = config.family->processor_fitted(config, whole[kNested], rules);
    if (changed != whole) io::write_file_atomic(unified, pretty_json(changed));
  }
  const io::Json file = read_object(own);
  if (nested && !file.is_object()) return;
  const io::Json before = file.is_object() ? file : io::Json::object();
  const io::Json after = config.family->processor_fitted(config, before, rules);
  if (after != before) io::write_file_atomic(own, pretty_json(after));
}

}  // namespace

std::string jinja_of(const AdapterNotes& notes, const family::ModelConfig& config,
                     const std::string& marker) {
  const std::string &name = notes.input.template_name, mark = config.family->processor_mark;
  if (text::is_named_form(name)) return text::named_form_jinja(name, mark, marker);
  if (!notes.chat_template.empty()) return notes.chat_template;
  const auto by_name = text::family_template(name, mark);  // recorded by an older lft
  return by_name ? by_name->text : "";
}

io::Json image_processor_json(const std::string& dir) {
  const io::Json whole = read_object(dir + "/processor_config.json");
  if (has_nested(whole)) return whole[kNested];
  const io::Json own = read_object(dir + "/preprocessor_config.json");
  return own.is_object() ? own : io::Json::object();
}

void write_model_files(const std::string& from, const std::string& to,
                       const family::ModelConfig& config, const AdapterNotes& notes) {
  copy_side_files(from, to);
  const family::InputSettings& input = notes.input;
  if (!input.template_name.empty())
    io::write_file_atomic(to + "/" + kModelNotes, notes_text(notes));
  if (const std::string jinja = jinja_of(notes, config); !jinja.empty()) write_template(to, jinja);
  if (!input.image_fit.empty()) write_fit(to, config, family::image_rules(input));
}

}  // namespace lft::hf
