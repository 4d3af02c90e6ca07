#include "models/ops/elementwise/logits.h"

#include <ATen/core/Tensor.h>

#include "models/ops/core/cpu_loops.h"

namespace lft::ops {

std::vector<bool> finite_rows(const at::Tensor& logits_bv) {
  const at::Tensor rows = logits_bv.contiguous();
  const int64_t vocab = rows.size(1);
  std::vector<bool> finite;
  for (int64_t b = 0; b < rows.size(0); ++b)
    finite.push_back(loops::all_finite(rows.const_data_ptr<float>() + b * vocab, vocab));
  return finite;
}

int64_t largest(const at::Tensor& logits_v) {
  const at::Tensor row = logits_v.contiguous();
  return loops::largest(row.const_data_ptr<float>(), row.numel());
}

}  // namespace lft::ops
