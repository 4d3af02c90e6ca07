// Checks whether the rows of the LM head and of the embedding belong to the same tokens.
#pragma once
#include <string>
#include <vector>

#include "src/train/weights/odd_weights.h"

namespace lft::train {

struct HeadFit {
  std::vector<Suspicion> suspicions;
  std::string not_judged;  // the reason when no judgement was possible
};
/// Uses about a thousand tokens spread over the vocabulary.
HeadFit head_fit(const hf::ModelDir& dir);

}  // namespace lft::train
