// The parts of a model by its config.json, known before any tensor is allocated. Plain data.
#pragma once
#include <string>
#include <vector>

#include "models/family/names.h"
#include "models/family/tower.h"

namespace lft::family {

class ModelImpl;  // model.h

/// Properties of a model that the module tree does not show.
struct VisionFacts {
  TowerFacts blocks;
  std::vector<std::string> unused_modules = {};  // no output depends on them: not trainable
  std::string unused_reason = "no output of it is used";
  int64_t deep_features = 0;  // ImageFeatures::deepstack_features_kd
};

struct ModelLayout {
  std::vector<TensorSpec> tensors;  // all tensors that a checkpoint must contain
  Tower vision;
  std::vector<Tower> decoder;  // its layers with attention, then those without; first those with an
                               // MLP, then those with experts
  ProjectorShape projector;
  std::vector<std::string> unused_modules;
  std::string unused_reason;
};

/// From the names and shapes of the model's parameters, which need no memory.
ModelLayout read_layout(const ModelImpl& model);

}  // namespace lft::family
