// The losses of preference pairs, one for each objective, as TRL 1.16.0 defines them. Each is
// float32 [p], before the mean over the pairs of the global batch.
#pragma once
#include "models/objective/pair_scores.h"

namespace lft::objective {

struct PairOptions {
  double beta = 0.1;
  double label_smoothing = 0;  // dpo: the share of pairs whose sides are assumed to be swapped
  double margin = 0.5;         // simpo: gamma / beta
};

/// Rafailov et al. 2023, equation 7; with label smoothing e Mitchell 2023 ("cDPO"), d being the
/// difference of the two log ratios: -(1 - e) log sigmoid(beta d) - e log sigmoid(-beta d).
at::Tensor dpo_loss(const PairScores& pairs, const PairOptions& options);
/// Azar et al. 2023, equation 17: (d - 1 / (2 beta))^2, where d is the difference of the mean log
/// ratios per token (as TRL; the paper's d is a difference of sums).
at::Tensor ipo_loss(const PairScores& pairs, const PairOptions& options);
/// Zhao et al. 2023 (SLiC) on log ratios: max(0, 1 - beta d).
at::Tensor hinge_loss(const PairScores& pairs, const PairOptions& options);
/// D'Oosterlinck et al. 2024, equation 7: 1 - sigmoid(beta c) + sigmoid(beta r) of the log ratios c
/// and r, so that each answer moves against the reference, and both cannot fall together.
at::Tensor apo_zero_loss(const PairScores& pairs, const PairOptions& options);
/// Meng et al. 2024, equation 6: -log sigmoid(beta (m - margin)), where m is the difference of the
/// mean log-probabilities per token. No reference.
at::Tensor simpo_loss(const PairScores& pairs, const PairOptions& options);
/// Hong et al. 2024, equation 6: -log p of the chosen answer (mean per token) - beta log
/// sigmoid(log odds ratio), with the odds p / (1 - p) of the mean probabilities. No reference.
at::Tensor orpo_loss(const PairScores& pairs, const PairOptions& options);

}  // namespace lft::objective
