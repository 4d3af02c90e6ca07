// lft debug memory: some steps of a recipe with every allocation recorded; what the memory is for,
// where the peak is, what leaks.
#pragma once
#include <functional>
#include <string>

#include "kernels/common/error.h"
#include "src/debug/memory/memory_parts.h"
#include "src/debug/trial/trial.h"
#include "src/recipe/recipe.h"

namespace lft::debug {

struct MemoryOptions {
  int64_t steps = 4;                // at least 3 tell a leak from what is made once
  std::string out = "memory.html";  // the picture; on a GPU the snapshot for memory_viz goes beside
                                    // it, as .pickle
  std::function<void(const std::string&)> print = print_line;
  TrialHooks hooks = {};
};

struct MemoryReport {
  MemoryPicture picture;
  std::vector<StepMarks> steps;  // those that took place
  std::string page, snapshot;    // files written; snapshot: "" without a GPU
  int signal = 0;                // came before the end
};

/// The recipe's first steps, from its first weights; its output_dir is neither read nor written.
/// Errors are those of train, out of memory included.
MemoryReport debug_memory(const recipe::Recipe& recipe, const MemoryOptions& options);

/// The error of a report with leaks.
ErrorInfo leak_error(const MemoryReport& report);

}  // namespace lft::debug
