#include "src/text/pipeline/json_access.h"

#include "kernels/common/error.h"

namespace lft::text {

void bad_tokenizer(const std::string& where, TokenizerFault fault) {
  if (fault.next.empty())
    fault.next =
        "fetch the tokenizer's files again from where the model came from; where they were edited, "
        "undo that";
  throw Error(ErrorKind::kInput, {.what = std::move(fault.what),
                                  .where = where,
                                  .found = std::move(fault.found),
                                  .expected = std::move(fault.expected),
                                  .next = std::move(fault.next)});
}

void unsupported_component(const std::string& where, const std::string& component,
                           const std::string& type) {
  bad_tokenizer(where, {.what = "tokenizer component is not supported",
                        .found = component + " " + type,
                        .expected = "a Llama-style BPE tokenizer (SentencePiece or byte-level)",
                        .next = "take a model that has one, such as LLaVA 1.5"});
}

bool is_set(const io::Json& object, const std::string& key) {
  const auto it = object.find(key);
  return it != object.end() && !it->is_null();
}

bool flag_or(const io::Json& object, const std::string& key, bool otherwise,
             const std::string& where) {
  if (!is_set(object, key)) return otherwise;
  if (!object[key].is_boolean())
    bad_tokenizer(where + "." + key, {.what = "not a truth value",
                                      .found = object[key].type_name(),
                                      .expected = "true or false",
                                      .next = {}});
  return object[key].get<bool>();
}

std::string text_or(const io::Json& object, const std::string& key, const std::string& otherwise,
                    const std::string& where) {
  if (!is_set(object, key)) return otherwise;
  if (!object[key].is_string())
    bad_tokenizer(where + "." + key, {.what = "not a string",
                                      .found = object[key].type_name(),
                                      .expected = "a string",
                                      .next = {}});
  return object[key].get<std::string>();
}

std::string type_of(const io::Json& object, const std::string& where) {
  if (!object.is_object())
    bad_tokenizer(where, {.what = "not an object",
                          .found = object.type_name(),
                          .expected = "an object with a type",
                          .next = {}});
  const std::string type = text_or(object, "type", "", where);
  if (type.empty())
    bad_tokenizer(where, {.what = "component without a type",
                          .found = {},
                          .expected = "an object with a type",
                          .next = {}});
  return type;
}

const io::Json& array_of(const io::Json& object, const std::string& key, const std::string& where) {
  if (!is_set(object, key) || !object[key].is_array()) {
    bad_tokenizer(where, {.what = "list is missing",
                          .found = is_set(object, key) ? object[key].type_name() : "nothing",
                          .expected = "a list \"" + key + "\"",
                          .next = {}});
  }
  return object[key];
}

}  // namespace lft::text
