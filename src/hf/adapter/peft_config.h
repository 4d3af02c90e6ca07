// adapter_config.json as PEFT writes it, reduced to what lft supports. Other settings are rejected,
// never ignored.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "models/lora/inject.h"
#include "src/hf/adapter/peft_targets.h"

namespace lft::hf {

/// Values by regular expression, in the order of the file.
template <class Value>
using ByPattern = std::vector<std::pair<std::string, Value>>;

struct PeftConfig {
  lora::LoraOptions lora;
  std::string base_model_name_or_path;
  std::vector<std::string> modules_to_save;
  PeftTargetRule rule = {};
  bool inference_mode = true;
  bool ensures_tie = false;  // ensure_weight_tying
  /// Other ranks and alphas: the first expression that matches the end of a module's name is used.
  ByPattern<int64_t> rank_pattern = {};
  ByPattern<double> alpha_pattern = {};
};

/// Reads an adapter_config.json. Throws kInput for a peft_type other than LORA, an unsupported key
/// whose value differs from PEFT's default, and values out of range.
PeftConfig read_peft_config(const std::string& file);
/// The keys that every PEFT version reads without a warning.
std::string peft_config_text(const PeftConfig& config);

}  // namespace lft::hf
