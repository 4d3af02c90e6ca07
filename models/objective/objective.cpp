#include "models/objective/objective.h"

#include <ATen/ATen.h>

namespace lft::objective {
namespace {

class SupervisedNll : public Objective {
 public:
  at::Tensor terms(const at::Tensor& logprobs_k, const family::Batch&) const override {
    return logprobs_k.numel() == 0 ? at::zeros({}, logprobs_k.options()) : -logprobs_k.sum();
  }
  int64_t normaliser(const GlobalBatchCounts& counts) const override { return counts.supervised; }
  bool sums_tokens() const override { return true; }
};

}  // namespace

const Objective& supervised_nll() {
  static const SupervisedNll objective;
  return objective;
}

}  // namespace lft::objective
