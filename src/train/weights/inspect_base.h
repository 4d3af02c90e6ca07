// Finds signs of damage in a base model's weights: lft debug base.
#pragma once
#include <string>
#include <vector>

#include "src/train/weights/odd_weights.h"

namespace lft::train {

struct BaseReport {
  std::string path;
  int64_t tensors = 0, values = 0;      // checked ones
  std::vector<Suspicion> suspicions;    // the oddest first
  bool untrained = false;               // looks_untrained()
  std::vector<std::string> not_judged;  // checks that were not possible, each with the reason
};
/// Reads one tensor at a time. kInput if the folder contains no supported model.
BaseReport inspect_base(const std::string& path);

std::vector<std::string> base_lines(const BaseReport& report);

}  // namespace lft::train
