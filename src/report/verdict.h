// What a run's metrics say about it, in one sentence.
//
// The figures: `first` and `last` are the mean training losses of the first and the last tenth of
// the steps (at least 3, at most 200), `error` is the standard error of their difference, and the
// held-out losses are those of the evaluations. The first rule that applies gives the verdict:
// unjudged: fewer than 10 steps
// diverged: last - first is above 5% of first and above 3 errors
// known: first is below 0.05, so there was nothing left to learn
// nothing_learnt: an event of that name, or |last - first| + 3 errors is below 1% of first
// unclear: first - last is below 2 errors, and the held-out loss has not fallen by 2%
// ignores_images: by the last event `images`, neither swapped nor blank images raise the loss by 2%
// overfits: the last held-out loss is more than 3% above the lowest, and the smoothed training loss
// has fallen since that evaluation
// still_falling: the mean training loss of the last fifth of the steps is below that of the fifth
// before it by more than 4% of first - last, more than 1% of itself and more than 2 errors, and no
// held-out loss is below the last one
// learnt: otherwise
//
// Of a run on preference pairs, whose steps have a reward_margin:
// unjudged: as above
// displaced: an event likelihood_displacement
// at_half: an event accuracy_at_half
// diverged, nothing_learnt: as above
// overfits: the accuracy of the last tenth of the steps is above one half by 2 errors, that of the
// last evaluation is not; or as above, and the held-out accuracy is not above that of the
// evaluation with the lowest loss
// unclear: neither accuracy is above one half by 2 errors
// learnt: otherwise
#pragma once
#include <cstdint>
#include <string>

#include "src/report/read_metrics.h"

namespace lft::report {

enum class RunState { kRunning, kDone, kStopped, kFailed };

/// What the metrics do not contain.
struct RunEnd {
  RunState state = RunState::kDone;
  int64_t total_steps = 0;
  int64_t kept_step = -1;     // under train.keep_best, the step whose weights are the result
  std::string reason = {};    // of a failure; empty: that of the last event "stopped"
  std::string answered = {};  // how many rows were answered exactly; empty: not known
  std::string figure = {};    // in an event "eval", of which the highest is the best; empty: the
                              // lowest eval_loss
};

struct Verdict {
  std::string kind;  // as above; "failed" or "stopped" for a run that ended early, and "running"
                     // for one in progress that neither diverges nor overfits
  std::string sentence;  // with a full stop
  bool operator==(const Verdict&) const = default;
};
Verdict judge_run(const Metrics& metrics, const RunEnd& end);

/// "held-out loss 0.1123 (step 300)", by RunEnd::figure; of the training loss if there was no
/// evaluation; empty before the first step.
std::string best_figure(const Metrics& metrics, const std::string& figure);

}  // namespace lft::report
