// The last lines of a run: its result, and the commands that use it.
#pragma once
#include <string>
#include <vector>

#include "src/train/run/evaluations.h"
#include "src/train/run/run.h"

namespace lft::train {

/// The step whose weights are saved as the result.
int64_t saved_step(const Run& run);

/// Lines to print: the result's path with its step and figure, then one command a line.
std::vector<std::string> closing_lines(const Run& run, const Evaluations& evaluations);

}  // namespace lft::train
