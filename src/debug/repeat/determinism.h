// `lft debug determinism`: runs the first steps of a recipe in two processes, and once with another
// number of data workers, and finds the first tensor that differs.
#pragma once
#include <functional>
#include <optional>

#include "src/debug/repeat/trace.h"

namespace lft::debug {

struct TraceDifference {
  std::optional<TraceRecord> a, b;  // at the first difference; nothing if that run had ended
  bool same_work = true;  // both hashed the same tensor; otherwise the runs did different things
  int64_t step = 0, differ = 0,
          compared = 0;  // `differ` of `compared` tensors of this step differ, if both did the same
};
std::optional<TraceDifference> first_difference(const Trace& a, const Trace& b);

struct DeterminismOptions {
  int64_t steps = 5;
  /// For tests: returns a trace instead of starting a process. `run` is 0, 1, or 2 for the other
  /// number of workers.
  std::function<Trace(const recipe::Recipe& recipe, int run)> trace = {};
};

/// Prints the comparison. Returns 0 if every bit is equal, or the exit code after a signal.
/// kNumeric: the first step, module and tensor that differ, and the part of the step.
int check_determinism(const recipe::Recipe& recipe, const DeterminismOptions& options);

}  // namespace lft::debug
