// Whether the LM head's rows and the embedding's belong to the same tokens.
#pragma once
#include <string>
#include <vector>

#include "src/train/inputs/odd_weights.h"

namespace lft::debug {

struct HeadFit {
  std::vector<train::Suspicion> suspicions;
  std::string not_judged;  // why, where nothing could be told
};
/// Of about a thousand tokens spread over the vocabulary.
HeadFit head_fit(const hf::ModelDir& dir);

}  // namespace lft::debug
