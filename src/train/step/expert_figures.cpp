#include "src/train/step/expert_figures.h"

#include <algorithm>
#include <numeric>

namespace lft::train {

objective::Figures expert_figures(const std::vector<int64_t>& tokens, int64_t experts) {
  if (tokens.empty()) return {};
  double load = 0;
  for (auto layer = tokens.begin(); layer != tokens.end(); layer += experts) {
    const auto most = static_cast<double>(*std::max_element(layer, layer + experts)),
               all = static_cast<double>(std::accumulate(layer, layer + experts, int64_t{0}));
    if (all > 0) load = std::max(load, most * static_cast<double>(experts) / all);
  }
  const auto unused = static_cast<double>(std::ranges::count(tokens, 0));
  return {{"experts_unused", unused / static_cast<double>(tokens.size())}, {"expert_load", load}};
}

}  // namespace lft::train
