// The out-of-memory error of a run: how much was requested, where, whether the cause is size or
// growth, and what would fit.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "kernels/common/error.h"
#include "src/train/inputs/run_inputs.h"
#include "src/train/memory/leak_watch.h"
#include "src/train/memory/memory_plan.h"
#include "src/train/memory/memory_watch.h"

namespace lft::train {

/// Memory during a run: the current phase, and what was observed of it.
class RunMemory {
 public:
  explicit RunMemory(at::Device device) : watch(device), leaks(watch), device_(device) {}

  /// Names the current phase: "building the model", "step 3", with the samples that matter.
  void begin(const std::string& what, std::vector<std::string> ids = {});
  /// After a step; the text of a warning where it becomes certain that something keeps tensors,
  /// else "". With `look_for_leaks` off it only counts: another ledger is at work. `ahead` as for
  /// LeakWatch.
  std::string step_done(bool look_for_leaks = true, int64_t ahead = 0);

  /// Describes the out-of-memory error, without the advice.
  ErrorInfo describe() const;

  MemoryWatch watch;
  LeakWatch leaks;

 private:
  at::Device device_;
  std::string what_ = "opening the inputs";
  std::vector<std::string> ids_;
  int64_t steps_done_ = 0;
};

/// The three cheapest of them that fit, in one line; where none fits, that none is enough.
std::string best_changes(std::vector<Mitigation> changes);

/// kResource, with the three cheapest changes of the recipe that would fit. `described`, by
/// `memory`, before anything was given back; the run itself should be gone. Measures lengths where
/// they are not measured.
Error out_of_memory(ErrorInfo described, const RunMemory& memory, RunInputs& inputs);

}  // namespace lft::train
