// The rules that optim.name can ask for, each with what is said of it where it is not made.
#pragma once
#include "src/recipe/recipe.h"
#include "src/train/optim/update_rule.h"

namespace lft::train {

struct RuleInfo {
  std::string name;     // optim.name
  std::string moments;  // what the memory plan calls that which it keeps
  RulePtr (*make)(const RuleOptions& options);
  std::string in_8_bits = {};  // the rule that keeps the same in 8 bits, where there is one
};
const std::vector<RuleInfo>& update_rules();
/// Throws kInternal for a name that is not among them.
const RuleInfo& find_rule(const std::string& name);
/// Throws kUsage where optim.offload is asked of a rule that cannot update a tensor in pieces.
RulePtr make_rule(const recipe::Recipe::Optim& optim);

}  // namespace lft::train
