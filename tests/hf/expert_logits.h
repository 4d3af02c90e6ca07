// Logits of text, for tests of models with experts.
#pragma once
#include "hf/support.h"
#include "support/tiny_experts.h"

namespace lft::test {

/// Logits for a row of text whose tokens are computed by every expert.
inline at::Tensor text_logits(Model& model) {
  const at::NoGradGuard no_grad;
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < 57; ++i) ids.push_back((i * 23 + 1) % 57);
  family::Batch batch;
  batch.input_ids_bt = at::tensor(ids, at::kLong).view({1, -1});
  batch.lengths_b = at::tensor(std::vector<int64_t>{std::ssize(ids)}, at::kLong);
  return model->all_logits(batch);
}

}  // namespace lft::test
