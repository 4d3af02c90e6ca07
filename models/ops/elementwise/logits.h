// Choices among the logits of a token, float32 on a CPU. Shape letters: b rows, v vocabulary.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace lft::ops {

/// Whether all numbers of each row are finite.
std::vector<bool> finite_rows(const at::Tensor& logits_bv);
/// The index of the largest number, the first if several are, as argmax() of PyTorch. Not for NaN.
int64_t largest(const at::Tensor& logits_v);

}  // namespace lft::ops
