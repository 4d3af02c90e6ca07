#include "src/hf/adapter/adapter_notes.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "kernels/common/error.h"
#include "src/base/hash.h"
#include "src/base/text.h"
#include "src/hf/adapter/adapter_files.h"
#include "src/hf/weights.h"
#include "src/io/files.h"
#include "src/text/chat/named_form.h"
#include "src/text/chat/template_files.h"
#include "src/text/tokenizer_parts.h"

namespace lft::hf {
namespace {

void read_setting(const io::Json& json, const char* key, const std::string& file,
                  std::string& setting) {
  setting = io::json_string(json, key, file);
}

void read_setting(const io::Json& json, const char* key, const std::string& file,
                  int64_t& setting) {
  setting = io::json_int(json, key, 0, int64_t{1} << 28, file);
}

/// Reads the folder's template file, whose hash must be the recorded one.
void read_template(const io::Json& json, const std::string& file, AdapterNotes& notes) {
  const std::string path =
      io::absolute_path(std::filesystem::path(file).parent_path().string() + "/" + kChatTemplate);
  notes.chat_template = text::read_template(path).text;
  notes.input.template_name = path;
  const std::string recorded = io::json_string(json, kTemplateHash, file);
  if (sha256(notes.chat_template) == recorded) return;
  refuse(ErrorKind::kInput, "the chat template is not the one of the training", path,
         "sha256 " + sha256(notes.chat_template).substr(0, 16),
         "sha256 " + recorded.substr(0, 16) + " (" + file + ")",
         "put the file back, or name the template to use in --template or data.template");
}

/// TRL, transformers' Trainer and LLaMA-Factory save the template of the training, without notes,
/// in the folder of their adapter.
AdapterNotes notes_of_others(const std::string& missing_file) {
  AdapterNotes notes;
  const std::string folder = std::filesystem::path(missing_file).parent_path().string(),
                    path = io::absolute_path(folder + "/" + kChatTemplate);
  if (!io::path_exists(path) || !io::path_exists(folder + "/adapter_config.json")) return notes;
  notes.chat_template = text::read_template(path).text;
  notes.input.template_name = path;
  return notes;
}

void check_tokenizer(const AdapterNotes& notes, const std::string& whose, const std::string& file,
                     const text::TokenizerParts& parts) {
  const text::TokenizerParts& recorded = notes.tokenizer;
  std::vector<std::string> changed = text::differing_parts(recorded, parts);
  if (recorded.size() <= 1)  // written by an older lft, which recorded only the sample's ids
    std::erase_if(changed, [&](const std::string& part) { return !recorded.contains(part); });
  if (changed.empty()) return;
  refuse(ErrorKind::kInput,
         whose + " " + "was trained with another tokenizer: the same words have other ids now",
         file, "another " + join(changed), "the same in each part of the tokenizer",
         "put the tokenizer files back that it was trained with");
}

}  // namespace

std::string notes_text(const AdapterNotes& notes) {
  io::Json json = {{"base_path", notes.base_path},
                   {"base_fingerprint", notes.base_fingerprint},
                   {"tokenizer", notes.tokenizer}};
  family::for_each_setting([&](const char* key, auto member) {
    if (family::is_set(notes.input.*member)) json[key] = notes.input.*member;
  });
  if (!text::is_named_form(notes.input.template_name) && !notes.chat_template.empty()) {
    json["template"] = kChatTemplate;
    json[kTemplateHash] = sha256(notes.chat_template);
  }
  return pretty_json(json);
}

void write_chat_template(const std::string& folder, const AdapterNotes& notes) {
  if (!notes.chat_template.empty())
    io::write_file_atomic(folder + "/" + kChatTemplate, notes.chat_template);
}

AdapterNotes read_notes(const std::string& file) {
  AdapterNotes notes;
  if (!io::path_exists(file)) return notes_of_others(file);
  const io::Json json = io::read_json_file(file);
  if (!json.is_object()) {
    refuse(ErrorKind::kInput, "not a JSON object", file, {}, "what lft wrote there");
  }
  notes.base_path = io::json_string(json, "base_path", file);
  notes.base_fingerprint = io::json_string(json, "base_fingerprint", file);
  family::for_each_setting([&](const char* key, auto member) {
    if (json.contains(key)) read_setting(json, key, file, notes.input.*member);
  });
  if (json.contains(kTemplateHash)) read_template(json, file, notes);
  if (json.contains("tokenizer") && json["tokenizer"].is_object()) {
    for (const auto& [part, hash] : json["tokenizer"].items())
      notes.tokenizer[part] = io::json_string(json["tokenizer"], part, file);
  } else if (json.contains("tokenizer")) {  // written before the parts were recorded separately
    notes.tokenizer[text::kSampleIdsPart] = io::json_string(json, "tokenizer", file);
  }
  return notes;
}

AdapterNotes read_model_notes(const std::string& model_path) {
  return read_notes(model_path + "/" + kModelNotes);
}

AdapterNotes training_notes(const AdapterDir& dir, const ModelDir& base) {
  const family::InputSettings& own = dir.notes.input;
  if (!own.template_name.empty() && !own.image_fit.empty()) return dir.notes;
  AdapterNotes notes = read_model_notes(base.path);
  if (own.template_name.empty()) return notes;
  notes.chat_template = dir.notes.chat_template;
  notes.input.template_name = own.template_name;
  return notes;
}

void check_adapter_tokenizer(const AdapterDir& dir, const text::TokenizerParts& parts) {
  check_tokenizer(dir.notes, "the adapter", dir.path + "/" + kAdapterNotes, parts);
}

void check_model_tokenizer(const std::string& model_path, const text::TokenizerParts& parts) {
  check_tokenizer(read_model_notes(model_path), "the model", model_path + "/" + kModelNotes, parts);
}

}  // namespace lft::hf
