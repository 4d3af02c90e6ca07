// What an objective of preferences reads: the log-probabilities of whole answers. Shape letters: k
// supervised tokens of a batch, n answers, p pairs.
#pragma once
#include <ATen/core/Tensor.h>

#include "models/family/batch.h"

namespace lft::objective {

/// Of the answers of a batch, in its order: a row's or a packed sequence's supervised tokens.
struct AnswerSums {
  at::Tensor logprobs_n;  // float32: the sum over the answer's tokens
  at::Tensor tokens_n;    // float32: their number, at least 1
};
AnswerSums sum_answers(const at::Tensor& logprobs_k, const family::Batch& batch);
/// batch.reference_n with the dtype and device of `like`. kInternal if it was not computed.
at::Tensor reference_of(const family::Batch& batch, const at::Tensor& like);

/// The two answers of each pair; float32 [p]. The reference is undefined for objectives without
/// one.
struct PairScores {
  at::Tensor chosen, rejected;                // sums of log-probabilities
  at::Tensor chosen_tokens, rejected_tokens;  // numbers of tokens
  at::Tensor reference_chosen = {}, reference_rejected = {};

  /// Per token.
  at::Tensor chosen_mean() const;
  at::Tensor rejected_mean() const;
  /// Log ratios to the reference.
  at::Tensor chosen_ratio() const;
  at::Tensor rejected_ratio() const;
};
/// Answers 2i and 2i + 1 are pair i. `reference_n`: their sums under the reference model, or
/// undefined.
PairScores pair_scores(const AnswerSums& sums, const at::Tensor& reference_n);

}  // namespace lft::objective
