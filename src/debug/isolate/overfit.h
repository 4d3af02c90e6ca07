// Whether a run can learn one batch by heart, and which suspect keeps it from that: the forward
// pass, frozen layers, the reduction, a setting, the learning rate. The data's variety is not in
// question here.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "kernels/common/error.h"
#include "src/debug/trial/trial.h"

namespace lft::debug {

struct OverfitOptions {
  int64_t steps = 200;
  std::string out = {};  // folder of overfit.html; empty: <output_dir>/debug-overfit
  std::function<void(const std::string&)> print = print_line;  // every line as it comes
  TrialHooks hooks = {};
};

struct OverfitSuspect {
  std::string name;  // frozen layer, learning rate too low, loss reduction, optim.eps
  bool guilty = false;
  std::vector<std::string> evidence = {};
  std::string next = {};  // what to do where it is guilty
};

struct OverfitReport {
  std::vector<std::string> samples;  // ids
  int64_t supervised = 0;            // tokens
  double floor = 0;  // what is left where equal prompts have different answers, nats a token
  std::vector<double> losses;  // before each update: mean over the supervised tokens
  double start = 0, lowest = 0;
  double near_zero_below =
      0;  // floor + the larger of 0.05 nats and 5 % of the way from the start to the floor
  std::string stopped;                   // why before the last step
  bool falling = false;                  // the loss still was when the steps were over
  std::vector<OverfitSuspect> suspects;  // in the order in which they were looked at
  std::string page;
  int signal = 0;  // that ended it; nothing is concluded then
  bool near_zero() const { return stopped.empty() && lowest < near_zero_below; }
  /// The steps were too few to say more than that nothing is wrong so far.
  bool unfinished() const { return stopped.empty() && !near_zero() && falling; }
  bool healthy() const;  // near zero or unfinished, and no suspect guilty
};

/// Up to 8 samples, the first of the training order with supervised tokens (one of them with an
/// image where the image side is trained), in micro-batches of train.batch_size; without dropout,
/// weight decay, warm-up and schedule. A forward pass that is not finite ends it. Frozen layers and
/// the reduction are always looked at; settings far from the usual (odd_settings.h) are each tried
/// against a usual one, with the adapters alone where they are the adapters'; the learning rate
/// where the loss does not come near zero. Steps that begin well and end above the start, or in a
/// value that is not finite, are the learning rate's where a lower one takes them. Writes
/// overfit.html and nothing else.
OverfitReport overfit(const recipe::Recipe& recipe, const OverfitOptions& options = {});

/// The error of a report that is not healthy.
ErrorInfo overfit_error(const OverfitReport& report);

}  // namespace lft::debug
