// The rules that optim.name can select, each with its description.
#pragma once
#include "src/recipe/recipe.h"
#include "src/train/optim/update_rule.h"

namespace lft::train {

struct RuleInfo {
  std::string name;     // optim.name
  std::string moments;  // the name of its moments in the memory plan
  RulePtr (*make)(const RuleOptions& options);
  std::string in_8_bits = {};  // the rule with the same moments in 8 bits, if any
};
const std::vector<RuleInfo>& update_rules();
/// Throws kInternal for an unknown name.
const RuleInfo& find_rule(const std::string& name);
/// Throws kUsage if optim.offload is requested for a rule that cannot update a tensor in pieces.
RulePtr make_rule(const recipe::Recipe::Optim& optim);

}  // namespace lft::train
