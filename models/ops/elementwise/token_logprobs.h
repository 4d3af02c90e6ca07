// The LM head. log softmax(h W^T)[target] for a list of rows never holds all logits: rows go
// through in chunks. Shape letters: k rows, d hidden, v vocabulary.
#pragma once
#include <ATen/core/Tensor.h>

namespace lft::ops {

/// float32 [k]. Logits have compute_dtype(), softmax is float32. With a frozen weight the gradient
/// of h is made in the forward pass and is all that is kept; with a trained weight, and under FP16,
/// h is kept and the logits are computed again. Every target must be in [0, v).
at::Tensor token_logprobs(const at::Tensor& hidden_kd, const at::Tensor& weight_vd,
                          const at::Tensor& targets_k);

/// Rows of logits that token_logprobs() has in memory at a time. On a GPU 1,024, since each product
/// of fewer rows reads the whole head; on a CPU what fits into 32 MiB of float32.
int64_t token_logprobs_rows(int64_t vocab, bool on_gpu);

/// float32 [..., v], without a graph: h W^T in compute_dtype(). A weight that the product would
/// have to copy is cast a slice of the vocabulary at a time.
at::Tensor head_logits(const at::Tensor& hidden, const at::Tensor& weight_vd);

}  // namespace lft::ops
