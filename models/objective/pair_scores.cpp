#include "models/objective/pair_scores.h"

#include <ATen/ATen.h>

#include <vector>

#include "kernels/common/error.h"

namespace lft::objective {
namespace {

/// The answer that each supervised token belongs to: int64 [k] on the CPU; and their number.
std::pair<at::Tensor, int64_t> answers_of_tokens(const family::Batch& batch) {
  const at::Tensor& labels_bt = batch.labels_bt;
  const int64_t t = labels_bt.size(1);
  // The first label of a row or sequence is never supervised, as no position predicts it.
  const at::Tensor places = (labels_bt.narrow(1, 1, t - 1) != -100).nonzero();
  if (!batch.packed) return {places.select(1, 0), labels_bt.size(0)};
  const std::vector<int64_t>& starts = batch.packed->starts;
  const at::Tensor ends =
      at::tensor(std::vector<int64_t>(starts.begin() + 1, starts.end()), at::kLong);
  return {at::bucketize(places.select(1, 1) + 1, ends, /*out_int32=*/false, /*right=*/true),
          static_cast<int64_t>(starts.size()) - 1};
}

}  // namespace

at::Tensor PairScores::chosen_mean() const { return chosen / chosen_tokens; }
at::Tensor PairScores::rejected_mean() const { return rejected / rejected_tokens; }
at::Tensor PairScores::chosen_ratio() const { return chosen - reference_chosen; }
at::Tensor PairScores::rejected_ratio() const { return rejected - reference_rejected; }

AnswerSums sum_answers(const at::Tensor& logprobs_k, const family::Batch& batch) {
  const auto [answers_k, count] = answers_of_tokens(batch);
  const at::Tensor on_device = answers_k.to(logprobs_k.device());
  const at::Tensor zeros = at::zeros({count}, logprobs_k.options());
  return {.logprobs_n = zeros.index_add(0, on_device, logprobs_k),
          .tokens_n = zeros.index_add(0, on_device, at::ones_like(logprobs_k)).clamp_min(1)};
}

at::Tensor reference_of(const family::Batch& batch, const at::Tensor& like) {
  if (!batch.reference_n.defined())
    throw Error(ErrorKind::kInternal, "an objective's reference was not computed");
  return batch.reference_n.to(like.options());
}

PairScores pair_scores(const AnswerSums& sums, const at::Tensor& reference_n) {
  const auto side = [](const at::Tensor& of_n, int64_t which) {
    return of_n.defined() ? of_n.view({-1, 2}).select(1, which) : at::Tensor();
  };
  return {.chosen = side(sums.logprobs_n, 0),
          .rejected = side(sums.logprobs_n, 1),
          .chosen_tokens = side(sums.tokens_n, 0),
          .rejected_tokens = side(sums.tokens_n, 1),
          .reference_chosen = side(reference_n, 0),
          .reference_rejected = side(reference_n, 1)};
}

}  // namespace lft::objective
