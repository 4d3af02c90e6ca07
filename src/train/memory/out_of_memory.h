// The out-of-memory error of a run: the size of the request, its place, whether the cause is batch
// size or growth, and settings that would fit.
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

/// Memory during a run: the current phase and its observations.
class RunMemory {
 public:
  explicit RunMemory(at::Device device) : watch(device), leaks(watch), device_(device) {}

  /// Names the current phase: "building the model", "step 3", with the relevant samples.
  void begin(const std::string& what, std::vector<std::string> ids = {});
  /// Call it after a step; returns a warning when a leak becomes
  /// certain, else "". With `look_for_leaks` false it only
  /// counts: another ledger is active. `ahead` as for LeakWatch.
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

/// The three cheapest changes that fit, in one line; if none fits, a statement of that.
std::string best_changes(std::vector<Mitigation> changes);

/// kResource with the three cheapest changes of the recipe that would fit. `described` is from
/// `memory` before memory was freed; the run itself should be destroyed. Measures lengths if they
/// are not measured.
Error out_of_memory(ErrorInfo described, const RunMemory& memory, RunInputs& inputs);

}  // namespace lft::train
