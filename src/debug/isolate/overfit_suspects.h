// The batch of the overfit exercise, and the suspects where it is not learnt, each with its
// evidence in numbers.
#pragma once
#include <vector>

#include "src/debug/isolate/overfit.h"
#include "src/debug/trial/trial.h"

namespace lft::debug {

inline constexpr char kLowLr[] = "learning rate too low";

/// The mean loss over the supervised tokens and its gradient, computed by another way than a
/// step's: sample by sample from whole logits, in FP32, log-softmax and mean in double.
struct MeanLoss {
  double loss = 0;
  std::vector<at::Tensor>
      gradients;  // by slot; undefined where the loss does not reach it or it requires none
};
MeanLoss independent_mean_loss(train::Run& run, const data::StepSamples& batch);

/// What the steps showed, gathered while they ran.
struct OverfitEvidence {
  double first_loss = 0;  // of the first step taken
  std::vector<at::Tensor>
      first_gradients;  // its own, unscaled, before clipping; empty: no step was taken
  std::vector<double> largest_norms;  // by slot, over all steps
};

/// A module that did not move, and why: its tensor requires no gradient, never got one, got only
/// zeros, or had one and stayed. One whose updates are below what float32 resolves is left to the
/// learning rate. To be called before any reset.
OverfitSuspect suspect_frozen(train::Run& run, const TrialRun& bench,
                              const OverfitEvidence& evidence);

/// The first step's loss and gradient against the mean's.
OverfitSuspect suspect_reduction(const train::Run& run, const MeanLoss& mean,
                                 const OverfitEvidence& evidence);

/// What steps at one learning rate came to.
struct ProbedSteps {
  double lowest = 0;   // loss; infinite: none was finite
  bool finite = true;  // every step was
};
/// What probes at other learning rates do; each begins at the start.
struct LrProbe {
  double start = 0, lowest = 0;  // of the run itself, over the first `steps`
  double near_zero_below = 0;
  int64_t steps = 0;
  std::string blew_up;  // how the run's steps ended after they had begun well; empty: they did not
  std::function<ProbedSteps()> take;  // so many steps more
};
/// Ten times the rate, and again while that gets further. To be called before any reset.
OverfitSuspect suspect_low_lr(train::Run& run, TrialRun& bench, const LrProbe& probe);
/// A tenth of the rate, a hundredth, a thousandth, until one gets further; of a run that blew up,
/// until one takes as many steps, all finite, and its loss falls.
OverfitSuspect suspect_high_lr(train::Run& run, TrialRun& bench, const LrProbe& probe);

}  // namespace lft::debug
