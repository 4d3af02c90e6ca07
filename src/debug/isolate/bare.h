// A run stripped to its core, and its parts put back one by one until one of them brings the
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
  std::function<void(const std::string&)> print = print_line;  // every line as it comes
  TrialHooks hooks = {};
};

/// One trial: the core with everything that has passed so far, and one part more.
struct BareTrial {
  std::string part;                        // "core", a recipe's section of settings, "lft train"
  std::vector<std::string> settings = {};  // "precision.compute fp32 -> fp16"
  std::string fault = {};                  // what failed; empty: healthy
  std::string remark = {};                 // on a healthy one
  std::optional<ForwardFault> cause = {};  // what explains it, where that is known
  double before = NAN, after = NAN;        // loss on the first samples, without dropout
  double fall() const { return before - after; }
};

struct BareReport {
  /// The core first. After a core that fails there is at most one, with a higher learning rate, and
  /// only where that learns.
  std::vector<BareTrial> trials;
  int signal = 0;  // that ended it
  bool healthy() const;
  std::vector<std::string> culprits() const;  // parts that failed
};

/// kUsage where <output_dir>/debug-bare is there already. The core: FP32, no dropout, clipping,
/// weight decay, schedule, accumulation or activation checkpointing, no files, and usual values in
/// the place of odd settings (odd_settings.h), which come back as parts, the adapters' with nothing
/// else trained, and fail where the loss falls by less than a third of what it falls without. Each
/// trial trains a fresh model for `steps` on the recipe's own data order and is healthy when every
/// step is finite, every trained module moves, and the loss on the first samples falls (a part's
/// trial: by a tenth of what it fell in the core's at least). Schedules run their whole length
/// within the steps. A part that fails is taken out again. The last trial is `lft train` itself
/// with the whole recipe but its evaluation, into <output_dir>/debug-bare, which is deleted
/// afterwards; it is left out where a part has failed.
BareReport bare(const recipe::Recipe& recipe, const BareOptions& options = {});

/// The error of a report that is not healthy.
ErrorInfo bare_error(const BareReport& report);

}  // namespace lft::debug
