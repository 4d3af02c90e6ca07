// `lft debug nan`: the search for values that are not finite on the batch of a step, without
// training.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "kernels/common/error.h"
#include "src/debug/nan/nan.h"
#include "src/recipe/recipe.h"
#include "src/train/inputs/run_inputs.h"
#include "src/train/inputs/run_model.h"

namespace lft::debug {

/// Prints the finding and returns 0 if everything is finite; otherwise kNumeric with the cause. The
/// weights are those of the newest checkpoint in output_dir at or before `step` - 1, or the initial
/// ones. Without a step the newest incident in output_dir is replayed (replay.h), or step 1 is run
/// if there is none. Writes nothing.
int debug_nan(const recipe::Recipe& recipe, std::optional<int64_t> step);

/// The samples of a step as input of the search.
HuntInput hunt_input(const train::RunInputs& inputs, const train::RunModel& model,
                     const data::StepSamples& samples, int64_t step);

/// Searches, prints, and returns 0 or throws kNumeric. `metrics` is the run's metrics.jsonl, for
/// hints; it may be missing. `when_finite` is printed if nothing is found.
int hunt_and_report(const recipe::Recipe& recipe, family::Model& model, const HuntInput& input,
                    const std::string& metrics, const std::string& when_finite);

}  // namespace lft::debug
