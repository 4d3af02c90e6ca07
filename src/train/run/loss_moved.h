// The warning at the end of a run that has learnt nothing, judged by its own training rows.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "kernels/common/error.h"
#include "src/train/run/run.h"

namespace lft::train {

/// The losses of the taken steps, from the lines of a metrics.jsonl.
std::vector<double> step_losses(const std::string& metrics_path);

/// Where the mean loss of the last third of the steps is that of the first within 1%, and their
/// scatter leaves no room for more (three standard errors): a sentence with the numbers. Nothing of
/// fewer than ten steps, and nothing where the loss is nearly 0 from the start.
std::string judge_losses(const std::vector<double>& losses);

/// Where the loss of the same training rows before and after is equal within a thousandth.
std::string judge_probe(double before, double after);

/// The warning as a block, where one of the two says so of a run of at least ten steps that did not
/// begin from an adapter that has learnt before.
std::optional<ErrorInfo> judge_learning(Run& run);

}  // namespace lft::train
