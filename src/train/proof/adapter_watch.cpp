#include "src/train/proof/adapter_watch.h"

#include <algorithm>

#include "kernels/common/error.h"
#include "models/lora/trained_modules.h"
#include "src/base/text.h"

namespace lft::train {
namespace {

constexpr double kSmallestHalf =
    6.103515625e-05;  // 2^-14, the smallest normal FP16 number: a smaller B may vanish in the cast

}  // namespace

void AdapterWatch::find_adapters(Optimizer& optimizer) {
  std::vector<lora::Trainable> trained;
  for (const Slot& slot : optimizer.slots()) trained.push_back(slot.param);
  for (const lora::TrainedModule& module : lora::trained_modules(trained)) {
    if (module.adapter()) adapters_.push_back({.name = module.name, .a = module.a, .b = module.b});
  }
}

void AdapterWatch::step(Optimizer& optimizer, const std::vector<double>& grad_norms, double factor,
                        at::ScalarType compute) {
  if (satisfied_) return;
  if (adapters_.empty()) find_adapters(optimizer);
  std::vector<double> lr(optimizer.slots().size(), 0);
  for (const ParamGroup& group : optimizer.groups()) {
    for (const size_t member : group.members) lr[member] = group.lr * factor;
  }
  std::vector<std::string> dead;
  for (Adapter& adapter : adapters_) {
    if (adapter.proven || grad_norms.at(adapter.b) == 0) continue;  // not reached by this batch
    if (grad_norms.at(adapter.a) > 0) {
      adapter.proven = true;
    } else if (adapter.moved > (compute == at::kHalf ? kSmallestHalf : 0)) {
      dead.push_back(adapter.name);
    }
    adapter.moved += lr[adapter.b];
  }
  if (!dead.empty()) {
    refuse(ErrorKind::kUsage,
           "an adapter does not learn: its B has moved, and the gradient of its A is still "
           "exactly zero",
           join(dead, ", ", 8),
           std::to_string(dead.size()) + " of " + std::to_string(adapters_.size()) + " adapters",
           "a gradient on A on the first step after an update with a learning rate above 0",
           "look for what resets B or cuts A off, or take these layers out of lora.targets");
  }
  satisfied_ = std::ranges::all_of(adapters_, &Adapter::proven);
}

}  // namespace lft::train
