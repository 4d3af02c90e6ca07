#include "src/text/pipeline/json_access.h"

#include "kernels/common/error.h"

namespace lft::text {

void bad_tokenizer(const std::string& where, const std::string& what, const std::string& found,
                   const std::string& expected, const std::string& next) {
  refuse(ErrorKind::kInput, what, where, found, expected,
         next.empty() ? "fetch the tokenizer's files again from where the model came from; where "
                        "they were edited, undo that"
                      : next);
}

void unsupported_component(const std::string& where, const std::string& component,
                           const std::string& type) {
  bad_tokenizer(where, "tokenizer component is not supported", component + " " + type,
                "a Llama-style BPE tokenizer (SentencePiece or byte-level)",
                "take a model that has one, such as LLaVA 1.5");
}

bool is_set(const io::Json& object, const std::string& key) {
  const auto it = object.find(key);
  return it != object.end() && !it->is_null();
}

bool flag_or(const io::Json& object, const std::string& key, bool otherwise,
             const std::string& where) {
  if (!is_set(object, key)) return otherwise;
  if (!object[key].is_boolean())
    bad_tokenizer(where + "." + key, "not a truth value", object[key].type_name(), "true or false");
  return object[key].get<bool>();
}

std::string text_or(const io::Json& object, const std::string& key, const std::string& otherwise,
                    const std::string& where) {
  if (!is_set(object, key)) return otherwise;
  if (!object[key].is_string())
    bad_tokenizer(where + "." + key, "not a string", object[key].type_name(), "a string");
  return object[key].get<std::string>();
}

std::string type_of(const io::Json& object, const std::string& where) {
  if (!object.is_object())
    bad_tokenizer(where, "not an object", object.type_name(), "an object with a type");
  std::string type = text_or(object, "type", "", where);
  if (type.empty()) bad_tokenizer(where, "component without a type", {}, "an object with a type");
  return type;
}

const io::Json& array_of(const io::Json& object, const std::string& key, const std::string& where) {
  if (!is_set(object, key) || !object[key].is_array()) {
    bad_tokenizer(where, "list is missing",
                  is_set(object, key) ? object[key].type_name() : "nothing",
                  "a list \"" + key + "\"");
  }
  return object[key];
}

}  // namespace lft::text
