#include "src/train/inputs/learnable.h"

#include <algorithm>

#include "models/lora/trained_modules.h"
#include "src/base/text.h"

namespace lft::train {

Learnable never_learning(const llava::LlavaConfig& config,
                         const std::vector<lora::Trainable>& trainables) {
  const std::vector<std::string> unused = llava::llava_unused_modules(config);
  const auto is_unused = [&](const std::string& name) {
    return std::any_of(unused.begin(), unused.end(),
                       [&](const std::string& module) { return name.starts_with(module + "."); });
  };
  std::vector<std::string> layers;
  for (const int64_t layer : config.vision_feature_layers) layers.push_back(std::to_string(layer));
  const std::string reason = "no output of it is used: with vision_feature_layer " + join(layers) +
                             " of " + std::to_string(config.vision.layers) +
                             " layers it lies after the last features that are";
  Learnable result;
  std::vector<lora::Trainable> left_out;
  for (const lora::Trainable& trainable : trainables) {
    if (is_unused(trainable.name)) {
      at::Tensor(trainable.tensor).set_requires_grad(false);
      left_out.push_back(trainable);
    } else {
      result.kept.push_back(trainable);
    }
  }
  for (const lora::TrainedModule& module : lora::trained_modules(left_out))
    result.excluded.push_back({module.name, reason});
  return result;
}

}  // namespace lft::train
