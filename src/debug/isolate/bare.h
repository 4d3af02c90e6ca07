// Disables the optional features of a run and re-enables them one at a time until one causes the
// failure.
#pragma once
#include <cmath>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "kernels/common/error.h"
#include "src/debug/isolate/forward_faults.h"
#include "src/debug/trial/trial.h"

namespace lft::debug {

struct BareOptions {
  int64_t steps = 20;                                          // of every trial
  std::function<void(const std::string&)> print = print_line;  // receives every line
  TrialHooks hooks = {};
};

/// One trial: the core with all parts that have passed, and one more part.
struct BareTrial {
  std::string part;                        // "core", a recipe's section of settings, "lft train"
  std::vector<std::string> settings = {};  // "precision.compute fp32 -> fp16"
  std::string fault = {};                  // what failed; empty: healthy
  std::string remark = {};                 // for a healthy one
  std::optional<ForwardFault> cause = {};  // the cause, if known
  double before = NAN, after = NAN;        // loss on the first samples, without dropout
  double fall() const { return before - after; }
};

struct BareReport {
  /// The core comes first. If it fails, there is at most one more trial, with a higher learning
  /// rate, if that learns.
  std::vector<BareTrial> trials;
  int signal = 0;  // that ended it
  bool healthy() const;
  std::vector<std::string> causes() const;  // parts that failed
};

/// kUsage if <output_dir>/debug-bare exists. The core: FP32, no dropout, clipping, weight decay,
/// schedule, accumulation or activation checkpointing, no files, and usual values instead of
/// unusual settings (odd_settings.h). Those are parts, too (adapter settings with only adapters
/// trained), and fail if the loss falls by less than a third of its fall without them. Each trial
/// trains a new model for `steps` in the recipe's data order. It is healthy if every step is
/// finite, every trained module changes, and the loss on the first samples falls (for a part by at
/// least a tenth of its fall in the core). Schedules run their whole length within the steps. A
/// part that fails is removed again. The last trial is `lft train` with the recipe without its
/// evaluation, in <output_dir>/debug-bare, which is deleted afterwards; it is skipped if a part has
/// failed.
BareReport bare(const recipe::Recipe& recipe, const BareOptions& options = {});

/// The error of a report that is not healthy.
ErrorInfo bare_error(const BareReport& report);

}  // namespace lft::debug
