// Which layers PEFT puts LoRA on: target_modules and what narrows it.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "src/text/pipeline/regex.h"

namespace lft::hf {

/// A list of names, or one regular expression; both are empty where the config gives neither.
struct PeftNames {
  std::vector<std::string> names = {};
  std::string expression = {};
  bool empty() const { return names.empty() && expression.empty(); }
};

/// As adapter_config.json has them.
struct PeftTargetRule {
  PeftNames targets = {}, excluded = {};      // target_modules, exclude_modules
  std::vector<int64_t> layers = {};           // layers_to_transform; empty: all
  std::vector<std::string> layer_lists = {};  // layers_pattern; empty: any
};

class PeftTargets {
 public:
  /// kInput for an expression that lft's regular expressions do not read.
  PeftTargets(const PeftTargetRule& rule, const std::string& where);
  /// Whether PEFT puts LoRA on the linear layer of this name.
  bool takes(const std::string& module) const;

 private:
  bool in_chosen_layer(const std::string& module) const;

  const PeftTargetRule& rule_;
  std::optional<text::Regex> targets_, excluded_;  // where they are expressions
};

}  // namespace lft::hf
