// lft debug memory: records every allocation of a few steps: memory by use, the peak, leaks.
#pragma once
#include <functional>
#include <string>

#include "kernels/common/error.h"
#include "src/debug/memory/memory_parts.h"
#include "src/debug/trial/trial.h"
#include "src/recipe/recipe.h"

namespace lft::debug {

struct MemoryOptions {
  int64_t steps = 4;                // at least 3, to distinguish a leak from one-time allocations
  std::string out = "memory.html";  // the page; on a GPU the snapshot for memory_viz is next to
                                    // it, as .pickle
  std::function<void(const std::string&)> print = print_line;
  TrialHooks hooks = {};
};

struct MemoryReport {
  MemoryPicture picture;
  std::vector<StepMarks> steps;  // steps that ran
  std::string page, snapshot;    // files written; snapshot: "" without a GPU
  int signal = 0;                // received before the end
};

/// Runs the recipe's first steps from its initial weights; its output_dir is neither read nor
/// written. Errors are those of train, including out of memory.
MemoryReport debug_memory(const recipe::Recipe& recipe, const MemoryOptions& options);

/// The error of a report with leaks.
ErrorInfo leak_error(const MemoryReport& report);

}  // namespace lft::debug
