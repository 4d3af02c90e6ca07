// The warning at the end of a run that did not learn, judged by its training rows.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "kernels/common/error.h"
#include "src/train/run/run.h"

namespace lft::train {

/// The losses of the taken steps, from the lines of a metrics.jsonl.
std::vector<double> step_losses(const std::string& metrics_path);

/// A sentence with the numbers if the mean losses of the first and last third of the steps differ
/// by less than 1%, and their scatter excludes more (three standard errors). Empty for fewer than
/// ten steps, or if the loss is nearly 0 from the start.
std::string judge_losses(const std::vector<double>& losses);

/// The same if the losses of the same training rows before and after differ by at most 0.1%.
std::string judge_probe(double before, double after);

/// The warning as a block, if one of the two applies to a run of at least ten steps that did not
/// start from a trained adapter.
std::optional<ErrorInfo> judge_learning(Run& run);

}  // namespace lft::train
