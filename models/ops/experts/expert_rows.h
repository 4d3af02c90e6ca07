// The rows of a mixture of experts: each token is computed by k experts, and the rows of an expert
// are adjacent, without padding. Shape letters: t tokens, k choices of a token, r = t k rows, d
// features.
#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <functional>
#include <vector>

namespace lft::ops {

struct ExpertRows : torch::CustomClassHolder {
  std::vector<int64_t> starts;  // [experts + 1]: the rows of each expert
  at::Tensor choices_r;         // int64: the flat index in [t, k] of the choice of each row
  at::Tensor tokens_r;          // int64: its token; rising within an expert
  at::Tensor rows_tk;           // int64: the row of each choice
  int64_t experts() const { return static_cast<int64_t>(starts.size()) - 1; }
  int64_t rows() const { return starts.back(); }
  int64_t of(int64_t expert) const {
    return starts[static_cast<size_t>(expert) + 1] - starts[static_cast<size_t>(expert)];
  }
};
using ExpertRowsPtr = c10::intrusive_ptr<ExpertRows>;

/// Sorts the choices, int64 [t, k] of experts below `experts`, on the CPU: on a GPU this waits for
/// the choices. Choices on the device meta have no values: each expert gets the same count.
ExpertRowsPtr sort_by_expert(const at::Tensor& choices_tk, int64_t experts);

/// The sum of the rows of each token, in float32 and rounded once: [t, d]. Without a graph.
at::Tensor sum_rows(const at::Tensor& x_rd, const ExpertRows& rows);

/// Calls body(expert, first row, rows) for each expert that has rows. `in_parallel`: by several
/// threads, those with the most rows first, unless one expert has most of the rows.
void for_experts(const ExpertRows& rows, bool in_parallel,
                 const std::function<void(int64_t, int64_t, int64_t)>& body);

}  // namespace lft::ops
