#include "src/hf/adapter/peft_config.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "kernels/common/error.h"
#include "models/lora/registry.h"
#include "src/base/errors.h"
#include "src/hf/weights.h"
#include "src/io/files.h"
#include "src/io/json.h"

namespace lft::hf {
namespace {

using OrderedJson = nlohmann::ordered_json;  // with the keys in the order of the file

template <class Value>
std::string shown(const Value& value) {
  return io::json_text(value).substr(0, 200);
}

template <class Value>
bool is_empty(const Value& value) {
  return value.is_null() || value == false ||
         ((value.is_object() || value.is_array()) && value.empty());
}

/// Keys that are read below or do not affect the computation. The tensors themselves determine
/// which modules have adapters.
const std::set<std::string> kRead = {
    "peft_type",
    "task_type",
    "base_model_name_or_path",
    "revision",
    "r",
    "lora_alpha",
    "lora_dropout",
    "target_modules",
    "target_parameters",
    "exclude_modules",
    "layers_to_transform",
    "layers_pattern",
    "rank_pattern",
    "alpha_pattern",
    "modules_to_save",
    "inference_mode",
    "ensure_weight_tying",
    "init_lora_weights",
    "loftq_config",  // these four change the initialisation only
    "eva_config",
    "corda_config",
    "lora_ga_config",
    "auto_mapping",
    "peft_version",
};

/// Values of init_lora_weights that leave the base as it is.
constexpr const char* kPlainInitialisations[] = {"gaussian", "eva", "orthogonal", "mica"};

bool is_variant_flag(const std::string& key) {
  const std::vector<lora::Variant>& all = lora::variants();
  return std::any_of(all.begin(), all.end(),
                     [&](const lora::Variant& variant) { return variant.peft_flag == key; });
}

/// PEFT's defaults other than null, false and empty.
const std::map<std::string, io::Json>& other_defaults() {
  static const std::map<std::string, io::Json> defaults = {
      {"bias", "none"}, {"megatron_core", "megatron.core"}, {"qalora_group_size", 16}};
  return defaults;
}

void check_unsupported(const io::Json& json, const std::string& where) {
  for (const auto& [key, value] : json.items()) {
    if (kRead.contains(key) || is_variant_flag(key) || is_empty(value)) continue;
    const auto usual = other_defaults().find(key);
    if (usual != other_defaults().end() && value == usual->second) continue;
    refuse(ErrorKind::kInput, "the adapter asks for something that is not supported",
           where + ": " + quote_text(key), shown(value),
           usual == other_defaults().end() ? "PEFT's default (null, false or empty)"
                                           : "PEFT's default " + shown(usual->second));
  }
}

/// Refuses initialisations that change the base: the stored A and B belong to the residual, not to
/// the original checkpoint.
void check_initialisation(const io::Json& json, const std::string& where) {
  if (!json.contains("init_lora_weights")) return;
  const io::Json& value = json["init_lora_weights"];
  const auto is_value = [&](const char* name) { return value == name; };
  if (value.is_boolean() || std::ranges::any_of(kPlainInitialisations, is_value)) return;
  refuse(ErrorKind::kInput, "the adapter was trained on a changed base",
         where + ": init_lora_weights", shown(value),
         "true, false, gaussian, eva, orthogonal or mica (PEFT converts the others when saving: "
         "path_initial_model_for_weight_conversion)");
}

bool flag(const io::Json& json, const std::string& key, bool otherwise, const std::string& where) {
  if (!json.contains(key) || json[key].is_null()) return otherwise;
  if (!json[key].is_boolean())
    refuse(ErrorKind::kInput, "a field has a wrong type", where + ": " + key, shown(json[key]),
           "true or false");
  return json[key].get<bool>();
}

double number(const io::Json& json, const std::string& key, double low, double high,
              const std::string& where) {
  const double value = io::json_number(json, key, where);
  if (!std::isfinite(value) || value < low || value > high) {
    refuse(ErrorKind::kInput, "a field is out of range", where + ": " + key, shown(json[key]),
           "a number from " + shown(io::Json(low)) + " to " + shown(io::Json(high)));
  }
  return value;
}

/// Empty if the key is absent.
std::vector<std::string> module_list(const io::Json& json, const std::string& key,
                                     const std::string& where) {
  std::vector<std::string> names;
  if (!json.contains(key) || json[key].is_null()) return names;
  const io::Json& list = json[key];
  const bool good =
      list.is_array() && std::all_of(list.begin(), list.end(), [](const io::Json& name) {
        return name.is_string() && name != "";
      });
  if (!good)
    refuse(ErrorKind::kInput, "a field has a wrong type", where + ": " + key, shown(list),
           "a list of module names");
  for (const io::Json& name : list) names.push_back(name.get<std::string>());
  return names;
}

PeftNames names_or_expression(const io::Json& json, const std::string& key,
                              const std::string& where) {
  if (json.contains(key) && json[key].is_string())
    return {.names = {}, .expression = json[key].get<std::string>()};
  return {.names = module_list(json, key, where), .expression = {}};
}

/// A list of names, or one name as a string.
std::vector<std::string> names_or_one(const io::Json& json, const std::string& key,
                                      const std::string& where) {
  const PeftNames given = names_or_expression(json, key, where);
  return given.expression.empty() ? given.names : std::vector<std::string>{given.expression};
}

std::vector<int64_t> layer_numbers(const io::Json& json, const std::string& where) {
  const io::Json given = json.value("layers_to_transform", io::Json());
  std::vector<int64_t> layers;
  for (const io::Json& layer : given.is_number() ? io::Json::array({given}) : given) {
    if (!layer.is_number_integer())
      refuse(ErrorKind::kInput, "a field has a wrong type", where + ": layers_to_transform",
             shown(given), "a number of a layer, or a list of them");
    layers.push_back(layer.get<int64_t>());
  }
  return layers;
}

/// The values of a pattern, each from `low` to `high`; empty if the key is absent.
template <class T>
ByPattern<T> by_pattern(const OrderedJson& json, const std::string& key, T low, T high,
                        const std::string& where) {
  ByPattern<T> values;
  if (!json.contains(key) || is_empty(json[key])) return values;
  if (!json[key].is_object())
    refuse(ErrorKind::kInput, "a field has a wrong type", where + ": " + key, shown(json[key]),
           "an object of patterns");
  for (const auto& [pattern, value] : json[key].items()) {
    const bool typed = std::is_integral_v<T> ? value.is_number_integer() : value.is_number();
    const double given = typed ? value.template get<double>() : NAN;
    if (pattern.empty() ||
        !(given >= static_cast<double>(low) && given <= static_cast<double>(high)))
      refuse(ErrorKind::kInput, "a field is out of range",
             where + ": " + key + ": " + quote_text(pattern), shown(value),
             "a number from " + shown(io::Json(low)) + " to " + shown(io::Json(high)));
    values.emplace_back(pattern, value.template get<T>());
  }
  return values;
}

/// The variant whose flag is set, otherwise plain LoRA.
std::string variant_of(const io::Json& json, const std::string& where) {
  const lora::Variant* set = nullptr;
  for (const lora::Variant& variant : lora::variants()) {
    if (variant.peft_flag.empty() || !flag(json, variant.peft_flag, false, where)) continue;
    if (set != nullptr)
      refuse(ErrorKind::kInput, "the adapter asks for something that is not supported", where,
             set->peft_flag + " and " + variant.peft_flag, "at most one of them");
    set = &variant;
  }
  return set == nullptr ? lora::variants().front().name : set->name;
}

/// An integer without a decimal point.
io::Json plain_number(double value) {
  const bool whole = value == std::floor(value) && value < 1e15;
  return whole ? io::Json(static_cast<int64_t>(value)) : io::Json(value);
}

}  // namespace

PeftConfig read_peft_config(const std::string& file) {
  const io::Json json = io::read_json_file(file);
  if (!json.is_object())
    refuse(ErrorKind::kInput, "not an adapter configuration", file, shown(json), "a JSON object");
  if (json.value("peft_type", io::Json()) != "LORA") {
    refuse(ErrorKind::kInput, "the adapter is of another kind", file + ": peft_type",
           shown(json.value("peft_type", io::Json())), "\"LORA\"");
  }
  check_unsupported(json, file);
  check_initialisation(json, file);
  PeftConfig config;
  config.lora.rank = io::json_int(json, "r", 1, 65536, file);
  config.lora.alpha = number(json, "lora_alpha", 1e-12, 1e9, file);
  config.lora.dropout =
      json.contains("lora_dropout") ? number(json, "lora_dropout", 0, 1, file) : 0;
  config.lora.variant = variant_of(json, file);
  config.inference_mode = flag(json, "inference_mode", false, file);
  config.ensures_tie = flag(json, "ensure_weight_tying", false, file);
  const OrderedJson ordered = OrderedJson::parse(io::read_file(file));
  config.rank_pattern = by_pattern<int64_t>(ordered, "rank_pattern", 1, 65536, file);
  config.alpha_pattern = by_pattern<double>(ordered, "alpha_pattern", 1e-12, 1e9, file);
  config.modules_to_save = module_list(json, "modules_to_save", file);
  config.rule = {.targets = names_or_expression(json, "target_modules", file),
                 .excluded = names_or_expression(json, "exclude_modules", file),
                 .layers = layer_numbers(json, file),
                 .layer_lists = names_or_one(json, "layers_pattern", file),
                 .saved = config.modules_to_save,
                 .parameters = module_list(json, "target_parameters", file)};
  if (const auto base = json.find("base_model_name_or_path");
      base != json.end() && !base->is_null()) {
    config.base_model_name_or_path = io::json_string(json, "base_model_name_or_path", file);
  }
  return config;
}

std::string peft_config_text(const PeftConfig& config) {
  io::Json json = {
      {"alpha_pattern", io::Json::object()},
      {"base_model_name_or_path", config.base_model_name_or_path},
      {"bias", "none"},
      {"fan_in_fan_out", false},
      {"inference_mode", config.inference_mode},
      {"init_lora_weights", true},
      {"lora_alpha", plain_number(config.lora.alpha)},
      {"lora_dropout", config.lora.dropout},
      {"modules_to_save",
       config.modules_to_save.empty() ? io::Json() : io::Json(config.modules_to_save)},
      {"peft_type", "LORA"},
      {"r", config.lora.rank},
      {"rank_pattern", io::Json::object()},
      {"revision", nullptr},
      {"target_modules", config.rule.targets.names},
      {"task_type", "CAUSAL_LM"},
  };
  if (!config.rule.parameters.empty()) json["target_parameters"] = config.rule.parameters;
  for (const auto& [pattern, value] : config.rank_pattern) json["rank_pattern"][pattern] = value;
  for (const auto& [pattern, value] : config.alpha_pattern)
    json["alpha_pattern"][pattern] = plain_number(value);
  for (const lora::Variant& variant : lora::variants()) {
    const bool set = variant.name == config.lora.variant;
    if (!variant.peft_flag.empty() && (set || variant.says_false)) json[variant.peft_flag] = set;
  }
  return pretty_json(json);
}

}  // namespace lft::hf
