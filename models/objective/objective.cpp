#include "models/objective/objective.h"

#include <ATen/ATen.h>

namespace lft::objective {
namespace {

class SupervisedNll : public Objective {
 public:
  at::Tensor terms(const at::Tensor& logprobs_k, const family::Batch&, double) const override {
    return logprobs_k.numel() == 0 ? at::zeros({}, logprobs_k.options()) : -logprobs_k.sum();
  }
  int64_t normaliser(const GlobalBatchCounts& counts) const override { return counts.supervised; }
  bool sums_tokens() const override { return true; }
};

}  // namespace

Figures Objective::means(std::span<const double> sums, int64_t units) const {
  Figures figures;
  for (const std::string& name : figure_names())
    figures.emplace_back(name, sums[figures.size()] / static_cast<double>(units));
  return figures;
}

const Objective& supervised_nll() {
  static const SupervisedNll objective;
  return objective;
}

}  // namespace lft::objective
