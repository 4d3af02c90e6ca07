// Whether a run can overfit one batch, and which suspect prevents it: the forward pass, frozen
// layers, the loss reduction, a setting, the learning rate.
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
  std::string out = {};  // directory of overfit.html; empty: <output_dir>/debug-overfit
  std::function<void(const std::string&)> print = print_line;  // receives every line
  TrialHooks hooks = {};
};

struct OverfitSuspect {
  std::string name;  // frozen layer, learning rate too low, loss reduction, optim.eps
  bool is_cause = false;
  std::vector<std::string> evidence = {};
  std::string next = {};  // the remedy if it is the cause
};

struct OverfitReport {
  std::vector<std::string> samples;  // ids
  int64_t supervised = 0;            // tokens
  double floor =
      0;  // lowest possible loss, in nats per token, if equal prompts have different answers
  std::vector<double> losses;  // before each update: mean over the supervised tokens
  double start = 0, lowest = 0;
  double near_zero_below =
      0;  // floor + the larger of 0.05 nats and 5 % of the way from the start to the floor
  std::string stopped;                   // why it ended before the last step
  bool falling = false;                  // the loss was still falling after the last step
  std::vector<OverfitSuspect> suspects;  // in the order of the checks
  std::string page;
  int signal = 0;  // that ended it; there is no conclusion then
  bool near_zero() const { return stopped.empty() && lowest < near_zero_below; }
  /// The steps were too few for a conclusion; no problem was found so far.
  bool unfinished() const { return stopped.empty() && !near_zero() && falling; }
  bool healthy() const;  // near zero or unfinished, and no suspect is a cause
};

/// The batch has up to 8 samples, the first of the training order with supervised tokens (one with
/// an image if projector or vision tower is trained), in micro-batches of train.batch_size, without
/// dropout, weight decay, warm-up and schedule. A forward pass that is not finite ends it. Frozen
/// layers and the reduction are always checked. Unusual settings (odd_settings.h) are compared with
/// usual values, adapter settings with only adapters trained. The learning rate is checked if the
/// loss does not come near zero; if the steps start well and end above the start or in a value that
/// is not finite, it is the cause if a lower one works. Writes only overfit.html.
OverfitReport overfit(const recipe::Recipe& recipe, const OverfitOptions& options = {});

/// The error of a report that is not healthy.
ErrorInfo overfit_error(const OverfitReport& report);

}  // namespace lft::debug
