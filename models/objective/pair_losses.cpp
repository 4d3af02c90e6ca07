#include "models/objective/pair_losses.h"

#include <ATen/ATen.h>

#include <cmath>

namespace lft::objective {
namespace {

at::Tensor ratio_difference(const PairScores& pairs) {
  return pairs.chosen_ratio() - pairs.rejected_ratio();
}

/// log(1 - exp(x)) for x < 0, by the branch that keeps its digits (Maechler 2012).
at::Tensor log_one_minus_exp(const at::Tensor& x) {
  const at::Tensor close = x > -std::log(2.0);
  // The branch that is not taken must have a finite gradient, too.
  const at::Tensor near = at::where(close, x, -1), far = at::where(close, -1, x);
  return at::where(close, at::log(-at::expm1(near)), at::log1p(-at::exp(far)));
}

}  // namespace

at::Tensor dpo_loss(const PairScores& pairs, const PairOptions& options) {
  const at::Tensor scaled = options.beta * ratio_difference(pairs);
  const at::Tensor loss = -(1 - options.label_smoothing) * at::log_sigmoid(scaled);
  return options.label_smoothing == 0 ? loss
                                      : loss - options.label_smoothing * at::log_sigmoid(-scaled);
}

at::Tensor ipo_loss(const PairScores& pairs, const PairOptions& options) {
  const at::Tensor difference =
      pairs.chosen_ratio() / pairs.chosen_tokens - pairs.rejected_ratio() / pairs.rejected_tokens;
  return (difference - 1 / (2 * options.beta)).square();
}

at::Tensor hinge_loss(const PairScores& pairs, const PairOptions& options) {
  return at::relu(1 - options.beta * ratio_difference(pairs));
}

at::Tensor apo_zero_loss(const PairScores& pairs, const PairOptions& options) {
  return at::sigmoid(-options.beta * pairs.chosen_ratio()) +
         at::sigmoid(options.beta * pairs.rejected_ratio());
}

at::Tensor simpo_loss(const PairScores& pairs, const PairOptions& options) {
  const at::Tensor difference = pairs.chosen_mean() - pairs.rejected_mean();
  return -at::log_sigmoid(options.beta * (difference - options.margin));
}

at::Tensor orpo_loss(const PairScores& pairs, const PairOptions& options) {
  const at::Tensor chosen = pairs.chosen_mean(), rejected = pairs.rejected_mean();
  const at::Tensor log_odds =
      (chosen - rejected) - (log_one_minus_exp(chosen) - log_one_minus_exp(rejected));
  return -chosen - options.beta * at::log_sigmoid(log_odds);
}

}  // namespace lft::objective
