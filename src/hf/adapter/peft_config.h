// adapter_config.json as PEFT writes it, reduced to what lft supports. Other settings are rejected,
// never ignored.
#pragma once
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "models/lora/inject.h"
#include "src/hf/adapter/peft_targets.h"

namespace lft::hf {

struct PeftConfig {
  lora::LoraOptions lora;
  std::string base_model_name_or_path;
  std::vector<std::string> modules_to_save;
  PeftTargetRule rule = {};
  bool inference_mode = true;
  bool ensures_tie = false;  // ensure_weight_tying
  /// Other ranks and alphas, by regular expressions: the first one that matches the end of a
  /// module's name is used, in the order of the keys (PEFT sorts them).
  std::map<std::string, int64_t> rank_pattern = {};
  std::map<std::string, double> alpha_pattern = {};
};

/// Throws kInput for a peft_type other than LORA, an unsupported key whose value differs from
/// PEFT's default, and values out of range.
PeftConfig parse_peft_config(const nlohmann::json& json, const std::string& where);
/// The keys that every PEFT version reads without a warning.
std::string peft_config_text(const PeftConfig& config);

}  // namespace lft::hf
