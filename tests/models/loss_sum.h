// The summed loss of a batch, computed under the test's guards.
#pragma once
#include "models/family/model.h"
#include "models/objective/objective.h"

namespace lft::test {

template <class Model>
at::Tensor loss_sum(const Model& model, const family::Batch& batch) {
  return objective::supervised_nll().terms(model->supervised_logprobs(batch), batch, 0);
}

}  // namespace lft::test
