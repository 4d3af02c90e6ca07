// The suspects if the batch of overfit() is not learned, with evidence in numbers.
#pragma once
#include <vector>

#include "src/debug/isolate/overfit.h"
#include "src/debug/trial/trial.h"

namespace lft::debug {

inline constexpr char kLowLr[] = "learning rate too low";

/// The mean loss over the supervised tokens and its gradient, computed independently of a step: by
/// sample from full logits, in FP32, with log-softmax and mean in double.
struct MeanLoss {
  double loss = 0;
  std::vector<at::Tensor> gradients;  // by slot; undefined if it has no gradient
};
MeanLoss independent_mean_loss(train::Run& run, const data::StepSamples& batch);

/// Figures of the steps.
struct OverfitEvidence {
  double first_loss = 0;                    // of the first step taken
  std::vector<at::Tensor> first_gradients;  // unscaled, before clipping; empty: no step was taken
  std::vector<double> largest_norms;        // by slot, over all steps
};

/// A module that did not change, and why: its tensor requires no gradient, never got one, got only
/// zeros, or did not change despite one. Updates below the resolution of float32 are attributed to
/// the learning rate. Call it before any reset.
OverfitSuspect suspect_frozen(train::Run& run, const TrialRun& bench,
                              const OverfitEvidence& evidence);

/// Compares the first step's loss and gradient with the mean.
OverfitSuspect suspect_reduction(const train::Run& run, const MeanLoss& mean,
                                 const OverfitEvidence& evidence);

/// The result of steps at one learning rate.
struct ProbedSteps {
  double lowest = 0;   // loss; infinite: none was finite
  bool finite = true;  // every step was finite
};
/// Probes at other learning rates; each starts from the initial state.
struct LrProbe {
  double start = 0, lowest = 0;  // of the run itself, over the first `steps`
  double near_zero_below = 0;
  int64_t steps = 0;
  std::string blew_up;  // how the run's steps diverged after a good start; empty: they did not
  std::function<ProbedSteps()> take;  // runs this number of steps
};
/// Tries ten times the learning rate, repeatedly while the loss falls further. Call it before any
/// reset.
OverfitSuspect suspect_low_lr(train::Run& run, TrialRun& bench, const LrProbe& probe);
/// Tries a tenth, a hundredth and a thousandth of the learning rate until the loss falls further;
/// for a run that diverged, until all steps are finite and the loss falls.
OverfitSuspect suspect_high_lr(train::Run& run, TrialRun& bench, const LrProbe& probe);

}  // namespace lft::debug
