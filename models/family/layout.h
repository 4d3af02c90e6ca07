// What a model of a config.json consists of, known before any tensor is allocated. Plain data.
#pragma once
#include <string>
#include <vector>

#include "models/family/names.h"
#include "models/family/tower.h"

namespace lft::family {

class ModelImpl;  // model.h

/// What the module tree does not show of a model.
struct VisionFacts {
  TowerFacts blocks;
  std::vector<std::string> unused_modules = {};  // no output depends on them: they cannot learn
  std::string unused_reason = "no output of it is used";
};

struct ModelLayout {
  std::vector<TensorSpec> tensors;  // all that a checkpoint must contain
  Tower vision, decoder;
  ProjectorShape projector;
  std::vector<std::string> unused_modules;
  std::string unused_reason;
};

/// From the names and shapes of the model's parameters, which need no memory.
ModelLayout read_layout(const ModelImpl& model);

}  // namespace lft::family
