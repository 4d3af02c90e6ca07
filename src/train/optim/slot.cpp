#include "src/train/optim/slot.h"

namespace lft::train {

at::Tensor Slot::moment(const std::string& name) const {
  for (const NamedMoment& each : moments) {
    if (each.name == name) return each.tensor;
  }
  return {};
}

std::vector<std::pair<std::string, at::Tensor>> moment_tensors(const Slot& slot) {
  std::vector<std::pair<std::string, at::Tensor>> tensors;
  for (const NamedMoment& each : slot.moments)
    tensors.emplace_back(each.name + "." + slot.param.name, each.tensor);
  return tensors;
}

void forget_moments(Slot& slot) {
  for (const NamedMoment& each : slot.moments) each.tensor.zero_();
  slot.steps = 0;
}

}  // namespace lft::train
