// `lft debug determinism`: the first steps of a recipe twice in two processes, and once more with
// another number of data workers; the first tensor that differs.
#pragma once
#include <functional>
#include <optional>

#include "src/debug/repeat/trace.h"

namespace lft::debug {

struct TraceDifference {
  std::optional<TraceRecord> a, b;  // at the first difference; nothing where that run had ended
  bool same_work = true;            // both hashed the same tensor; else one did something else
  int64_t step = 0, differ = 0,
          compared =
              0;  // `differ` of `compared` tensors of this step differ, where both did the same
};
std::optional<TraceDifference> first_difference(const Trace& a, const Trace& b);

struct DeterminismOptions {
  int64_t steps = 5;
  /// A test's way in: a trace in place of one from a process of its own. `run` is 0, 1, or 2 for
  /// the other number of workers.
  std::function<Trace(const recipe::Recipe& recipe, int run)> trace = {};
};

/// Prints what was compared. 0: every bit equal; or the exit code of a stop by a signal. kNumeric:
/// the first step, module and tensor that differ, and in which part of a step that is.
int check_determinism(const recipe::Recipe& recipe, const DeterminismOptions& options);

}  // namespace lft::debug
