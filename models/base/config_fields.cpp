#include "models/base/config_fields.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "kernels/common/error.h"

namespace lft {
namespace {

using Json = nlohmann::json;

std::string shown(const Json& value) {
  const std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  return text.size() <= 80 ? text : text.substr(0, 80) + "...";
}

}  // namespace

const std::vector<std::string>& known_activations() {
  static const std::vector<std::string> names = {
      "gelu", "quick_gelu", "gelu_new", "gelu_pytorch_tanh", "relu", "silu"};
  return names;
}

ConfigFields::ConfigFields(const Json& object, std::string prefix, const std::string& file)
    : object_(object), prefix_(std::move(prefix)), file_(file) {
  if (!object.is_object()) fail("", object.dump(), "an object");
}

const Json* ConfigFields::find(const char* key) const {
  const auto it = object_.find(key);
  return it == object_.end() || it->is_null() ? nullptr : &*it;
}

bool ConfigFields::has(const char* key) const { return object_.contains(key); }

void ConfigFields::integer(const char* key, int64_t low, int64_t high, int64_t* value) const {
  if (const Json* found = find(key)) *value = checked(key, *found, low, high);
}

int64_t ConfigFields::checked(const char* key, const Json& found, int64_t low, int64_t high) const {
  const bool fits = found.is_number_unsigned()
                        ? found.get<uint64_t>() <= static_cast<uint64_t>(INT64_MAX)
                        : found.is_number_integer();
  if (!fits || found.get<int64_t>() < low || found.get<int64_t>() > high) {
    fail(key, shown(found),
         "a whole number in [" + std::to_string(low) + ", " + std::to_string(high) + "]");
  }
  return found.get<int64_t>();
}

void ConfigFields::number(const char* key, double above, double high, double* value) const {
  const Json* found = find(key);
  if (found == nullptr) return;
  if (!found->is_number() || !std::isfinite(found->get<double>()) ||
      found->get<double>() <= above || found->get<double>() > high) {
    fail(key, shown(*found),
         "a number above " + Json(above).dump() + " and at most " + Json(high).dump());
  }
  *value = found->get<double>();
}

void ConfigFields::flag(const char* key, bool* value) const {
  const Json* found = find(key);
  if (found == nullptr) return;
  if (!found->is_boolean()) fail(key, shown(*found), "true or false");
  *value = found->get<bool>();
}

void ConfigFields::text(const char* key, std::string* value) const {
  const Json* found = find(key);
  if (found == nullptr) return;
  if (!found->is_string()) fail(key, shown(*found), "a string");
  *value = found->get<std::string>();
}

void ConfigFields::one_of(const char* key, const std::vector<std::string>& allowed,
                          std::string* value) const {
  text(key, value);
  std::string list;
  for (const std::string& name : allowed) {
    if (*value == name) return;
    list += (list.empty() ? "" : ", ") + name;
  }
  fail(key, *value, "one of " + list);
}

void ConfigFields::square(const char* key, int64_t low, int64_t high, int64_t* value) const {
  const Json* found = find(key);
  if (found == nullptr) return;
  const bool pair = found->is_array() && found->size() == 2 && (*found)[0] == (*found)[1];
  *value = checked(key, pair ? (*found)[0] : *found, low, high);
}

ConfigFields ConfigFields::child(const char* key) const {
  return ConfigFields(*find(key), prefix_ + key + ".", file_);
}

void ConfigFields::fail(const std::string& key, const std::string& found,
                        const std::string& expected) const {
  throw Error(ErrorKind::kInput,
              {.what = "config.json: " + prefix_ + key + " cannot be used",
               .where = file_ + ": " + prefix_ + key,
               .found = found,
               .expected = expected,
               .next = "use a model that lft supports; if you edited config.json, revert it"});
}

}  // namespace lft
