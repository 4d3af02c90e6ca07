#include "src/text/chat/template_files.h"

#include <filesystem>

#include "kernels/common/error.h"
#include "src/io/files.h"
#include "src/io/json.h"
#include "src/text/pipeline/aligned.h"

namespace lft::text {
namespace {

constexpr const char* kKey = "chat_template";
constexpr const char* kFetch = "fetch the file again from where the checkpoint came";

[[noreturn]] void refuse_without_default(const std::string& where) {
  refuse(ErrorKind::kInput, "several chat templates, none of which is named \"default\"", where, {},
         "one named default",
         "name the file of one of them in data.template, or give the checkpoint a default");
}

/// A text, a list of {"name", "template"}, or an object by names: returns the default's text.
std::optional<TemplateText> default_of(const io::Json& value, const std::string& where) {
  if (value.is_null()) return std::nullopt;
  if (value.is_string()) return TemplateText{value.get<std::string>(), where};
  const auto text_of = [&](const io::Json& text) -> TemplateText {
    if (text.is_string()) return {text.get<std::string>(), where};
    refuse(ErrorKind::kInput, "a chat template is not a text", where, io::describe_json(text),
           "a text", kFetch);
  };
  if (value.is_object()) {
    if (!value.contains("default")) refuse_without_default(where);
    return text_of(value["default"]);
  }
  if (!value.is_array()) text_of(value);
  for (const io::Json& each : value) {
    if (each.is_object() && each.value("name", io::Json()) == "default")
      return text_of(each.value("template", io::Json()));
  }
  refuse_without_default(where);
}

/// The template in a JSON file of the folder.
std::optional<TemplateText> keyed(const std::string& dir, const char* file) {
  const std::string where = dir + "/" + file;
  if (!io::path_exists(where)) return std::nullopt;
  const io::Json json = io::read_json_file(where);
  if (!json.is_object()) return std::nullopt;
  return default_of(json.value(kKey, io::Json()), where + ": " + kKey);
}

bool has_additional(const std::string& dir) {
  const std::filesystem::path folder = dir + "/additional_chat_templates";
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    if (entry.path().extension() == ".jinja") return true;
  }
  return false;
}

}  // namespace

bool uses_date(const std::string& jinja) { return jinja.find("strftime_now") != std::string::npos; }

TemplateText read_template(const std::string& path) {
  if (!io::path_exists(path) || io::is_directory(path)) {
    refuse(ErrorKind::kInput, "no chat template file", path, {}, "a file of Jinja",
           "name a file, or one of the named forms");
  }
  std::string text = io::read_file(path);
  if (text.size() > kMaxTemplateBytes || to_valid_utf8(text) != text) {
    refuse(ErrorKind::kInput, "the chat template is not a text", path,
           std::to_string(text.size()) + " bytes",
           "UTF-8 of at most " + std::to_string(kMaxTemplateBytes) + " bytes", kFetch);
  }
  return {std::move(text), path};
}

std::optional<TemplateText> find_template(const std::string& model_dir) {
  if (auto found = keyed(model_dir, "processor_config.json")) return found;
  const bool additional = has_additional(model_dir);
  if (auto found = keyed(model_dir, "chat_template.json")) {
    if (additional) {
      refuse(ErrorKind::kInput, "chat_template.json next to additional_chat_templates/", model_dir,
             {}, "chat_template.jinja, as transformers expects next to them",
             "write the text of chat_template.json to chat_template.jinja and delete the former");
    }
    return found;
  }
  const std::string jinja = model_dir + "/chat_template.jinja";
  if (io::path_exists(jinja)) return read_template(jinja);
  if (io::path_exists(model_dir + "/additional_chat_templates/default.jinja"))
    return read_template(model_dir + "/additional_chat_templates/default.jinja");
  if (additional) refuse_without_default(model_dir + "/additional_chat_templates");
  return keyed(model_dir, "tokenizer_config.json");
}

}  // namespace lft::text
