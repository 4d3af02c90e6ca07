// `lft debug nan`: the hunt on the batch of a step, without training.
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

/// Prints the finding. 0 when everything is finite; else kNumeric naming the culprit. The weights
/// are those of the newest checkpoint in output_dir at or before `step` - 1, or those that training
/// would start from. Without a step the newest incident in output_dir is replayed (replay.h); where
/// there is none it is step 1. Writes nothing.
int debug_nan(const recipe::Recipe& recipe, std::optional<int64_t> step);

/// The samples of a step as the hunt reads them.
HuntInput hunt_input(const train::RunInputs& inputs, const train::RunModel& model,
                     const data::StepSamples& samples, int64_t step);

/// Hunts, prints, and ends with 0 or kNumeric. `metrics`: the run's metrics.jsonl, for hints; may
/// be missing. `when_finite`: printed where nothing is found.
int hunt_and_report(const recipe::Recipe& recipe, family::Model& model, const HuntInput& input,
                    const std::string& metrics, const std::string& when_finite);

}  // namespace lft::debug
