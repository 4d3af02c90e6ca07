// The layers that get LoRA in PEFT: target_modules and the keys that restrict it. The only place
// with that rule.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "src/hf/adapter/peft_patterns.h"
#include "src/text/pipeline/regex.h"

namespace lft::hf {

/// A list of names, or one regular expression; both are empty if the config has neither.
struct PeftNames {
  std::vector<std::string> names = {};
  std::string expression = {};
  bool empty() const { return names.empty() && expression.empty(); }
};

/// Values of the keys in adapter_config.json.
struct PeftTargetRule {
  PeftNames targets = {}, excluded = {};      // target_modules, exclude_modules
  std::vector<int64_t> layers = {};           // layers_to_transform; empty: all
  std::vector<std::string> layer_lists = {};  // layers_pattern; empty: any
  std::vector<std::string> saved = {};        // modules_to_save, which get no LoRA inside
  std::vector<std::string> parameters = {};   // target_parameters
};

class PeftTargets {
 public:
  /// `rule` must outlive it. Empty for an expression that only Python supports.
  static std::optional<PeftTargets> of(const PeftTargetRule& rule, const std::string& where);
  /// Whether the linear layer of this name gets LoRA in PEFT.
  bool takes(const std::string& module) const;

 private:
  PeftTargets(const PeftTargetRule& rule, const std::string& where);
  bool in_chosen_layer(const std::string& module) const;

  const PeftTargetRule& rule_;
  std::optional<text::Regex> targets_, excluded_;  // if they are expressions
  PeftPatterns layer_lists_;
};

}  // namespace lft::hf
