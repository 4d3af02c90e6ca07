// Checks before step 1 for what would stop a later step: samples that cannot be read, learning
// rates that are all 0.
#pragma once
#include <string>
#include <vector>

#include "src/train/inputs/run_inputs.h"

namespace lft::train {

/// Measures data.train and data.eval. kInput naming the first sample that cannot be read; under
/// on_bad_sample: skip only where more than data.max_bad of one data set cannot. Lines about what
/// will be left out and what teaches or measures nothing.
std::vector<std::string> check_samples(RunInputs& inputs);

/// kInput where no held-out row has a supervised token: neither a loss nor a metric could be
/// computed. Looks for the first that has one.
void check_held_out(const RunInputs& inputs);

/// Decodes images of rows spread over data.train and data.eval for about this many seconds, in
/// data.workers threads: what their headers, which check_samples() reads, do not tell. Every image
/// where the time is enough; else a line says of how many rows. What is bad is as for
/// check_samples().
std::vector<std::string> check_images(const RunInputs& inputs, double seconds);

/// While a run decodes: kInput where more than data.max_bad samples of data.train were
/// left out. `skipped`: a line for each time, as Run keeps them, in every epoch again; those of
/// data.eval are not counted.
void check_bad_count(const data::EncodeOptions& encode, const std::vector<std::string>& skipped);

/// kUsage where no step would move adapters or anything else that is trained: final_check.h would
/// refuse the run when it is done.
void check_learning_rates(const RunInputs& inputs);

/// A warning with the numbers and the fields to change where the steps, less what warm-up and decay
/// take of the learning rate, are too few to teach anything; else empty.
std::string judge_steps(const RunInputs& inputs);

}  // namespace lft::train
