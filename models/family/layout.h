// What a model of a config.json consists of, known before any tensor is allocated. Plain data.
#pragma once
#include <string>
#include <vector>

#include "models/family/names.h"
#include "models/family/tower.h"

namespace lft::family {

struct ModelLayout {
  std::vector<TensorSpec> tensors;  // all that a checkpoint must contain
  Tower vision;
  ProjectorShape projector;
  std::vector<std::string> unused_modules;  // no output depends on them, so they cannot be trained
  std::string unused_reason = "no output of it is used";
};

}  // namespace lft::family
