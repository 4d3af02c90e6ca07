// What of the chosen tensors can learn at all, by the model's config.
#pragma once
#include <string>
#include <vector>

#include "models/llava/llava.h"
#include "models/lora/inject.h"

namespace lft::train {

/// A module that was chosen for training and whose gradient would be zero for ever.
struct ExcludedModule {
  std::string name, reason;
};
struct Learnable {
  std::vector<lora::Trainable> kept;
  std::vector<ExcludedModule> excluded;  // one a module
};
/// Splits off what no output of the model depends on; its tensors no longer require a gradient.
Learnable never_learning(const llava::LlavaConfig& config,
                         const std::vector<lora::Trainable>& trainables);

}  // namespace lft::train
