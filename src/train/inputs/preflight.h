// Checks before step 1 for errors that would stop a later step: unreadable samples, learning rates
// that are all 0.
#pragma once
#include <string>
#include <vector>

#include "src/train/inputs/run_inputs.h"

namespace lft::train {

/// Measures data.train and data.eval. kInput with the first unreadable sample; under on_bad_sample:
/// skip only if more than data.max_bad of one data set are unreadable. Returns lines about skipped
/// rows and rows that have no effect on training or evaluation.
std::vector<std::string> check_samples(RunInputs& inputs);

/// kInput if no held-out row has a supervised token: neither a loss nor a metric could be computed.
/// Stops at the first row that has one.
void check_held_out(const RunInputs& inputs);

/// Decodes images of rows spread over data.train and data.eval for about this many seconds, in
/// data.workers threads, to find errors that the headers, which check_samples() reads, do not show.
/// If the time is not enough for every image, a line reports the number of rows. Bad samples are
/// treated as in check_samples().
std::vector<std::string> check_images(const RunInputs& inputs, double seconds);

/// After decoding: kInput if more than data.max_bad samples of `rows` were skipped. `skipped` has
/// one line per skip, as kept by Run, repeated in every epoch; samples of data.eval that were
/// skipped in a run are not counted.
void check_bad_count(const data::EncodeOptions& encode, const std::vector<std::string>& skipped,
                     const std::string& rows = "data.train");

/// kUsage if no step would change adapters or any other trainable: final_check.h would reject the
/// finished run.
void check_learning_rates(const RunInputs& inputs);

/// A warning with the numbers and the fields to change if the steps, less the share lost to warm-up
/// and decay, are too few to train anything; else empty.
std::string judge_steps(const RunInputs& inputs);

}  // namespace lft::train
