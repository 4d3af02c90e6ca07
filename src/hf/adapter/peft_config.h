// adapter_config.json as PEFT writes it, reduced to what lft computes with. Whatever else it asks
// for is refused, never ignored.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "models/lora/inject.h"

namespace lft::hf {

struct PeftConfig {
  lora::LoraOptions lora;
  std::string base_model_name_or_path;
  std::vector<std::string> modules_to_save;
  std::vector<std::string> targets = {};  // target_modules, where that is a list of names
  bool inference_mode = true;
};

/// Throws kInput for a peft_type other than LORA, a key that lft lacks at another value than PEFT's
/// default, and values out of range.
PeftConfig parse_peft_config(const nlohmann::json& json, const std::string& where);
/// The keys that every PEFT version reads without a warning. `target_modules` is a regular
/// expression for a full match.
std::string peft_config_text(const PeftConfig& config, const std::string& target_modules);

}  // namespace lft::hf
