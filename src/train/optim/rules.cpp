#include "src/train/optim/rules.h"

#include "kernels/common/error.h"
#include "src/train/optim/adamw.h"
#include "src/train/optim/adamw8bit.h"
#include "src/train/optim/lion.h"
#include "src/train/optim/muon.h"

namespace lft::train {

const std::vector<RuleInfo>& update_rules() {
  static const std::vector<RuleInfo> rules = {
      {"adamw", "Adam's moments", make_adamw, "adamw8bit"},
      {"adamw8bit", "Adam's moments in 8 bits", make_adamw8bit},
      {"lion", "Lion's moment", make_lion},
      {"muon", "Muon's momentum and Adam's moments", make_muon},
  };
  return rules;
}

const RuleInfo& find_rule(const std::string& name) {
  for (const RuleInfo& rule : update_rules()) {
    if (rule.name == name) return rule;
  }
  refuse(ErrorKind::kInternal, "there is no optimizer of this name", "optim.name", name,
         "a rule of src/train/optim/rules.cpp", "add it there");
}

RulePtr make_rule(const recipe::Recipe::Optim& optim) {
  RulePtr rule =
      find_rule(optim.name)
          .make({.betas = optim.betas, .eps = optim.eps, .weight_decay = optim.weight_decay});
  if (optim.offload && !rule->in_pieces()) {
    refuse(ErrorKind::kUsage, "this optimizer cannot keep its moments in host memory",
           "optim.offload", "optim.name " + optim.name + ", which updates a whole matrix at once",
           "an optimizer that updates each element by itself",
           "set optim.offload to false, or optim.name to adamw");
  }
  return rule;
}

}  // namespace lft::train
