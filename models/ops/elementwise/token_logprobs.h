// The LM head: log softmax(h W^T)[target] for a list of rows, in chunks, so that the logits of all
// rows are never in memory. Shape letters: k rows, d hidden, v vocabulary.
#pragma once
#include <ATen/core/Tensor.h>

namespace lft::ops {

/// float32 [k]. Logits have compute_dtype(), the softmax is float32. With a frozen weight the
/// gradient of h is computed in the forward pass and only it is saved; with a trained weight, and
/// under FP16, h is saved and the logits are recomputed. Every target must be in [0, v).
at::Tensor token_logprobs(const at::Tensor& hidden_kd, const at::Tensor& weight_vd,
                          const at::Tensor& targets_k);

/// The number of rows per chunk of token_logprobs(). On a GPU 1,024, since every product reads the
/// whole head; on a CPU as many as fit into 32 MiB of float32.
int64_t token_logprobs_rows(int64_t vocab, bool on_gpu);

/// float32 [..., v], without a graph: h W^T in compute_dtype(). A weight of another dtype is cast
/// one slice of the vocabulary at a time.
at::Tensor head_logits(const at::Tensor& hidden, const at::Tensor& weight_vd);

}  // namespace lft::ops
