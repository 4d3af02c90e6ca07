// The loss of the first step of a run on preference pairs: known before it, as the run begins at
// its reference.
#pragma once
#include <optional>
#include <string>

#include "kernels/common/error.h"
#include "src/train/run/run.h"

namespace lft::train {

/// The objective's loss of a pair whose answers are as likely as under the reference, without
/// objective.sft_weight's part. Needs an objective of pairs with a reference.
double loss_at_reference(const objective::Objective& objective);

/// "first loss expected: 0.6931, of dpo at its reference"; empty for a run on single answers.
std::string describe_pairs_start(const Run& run);

/// The warning if the first step's loss is another one. Nothing is judged where dropout or noise
/// changes the initial model, or where its likelihood is part of the loss.
std::optional<ErrorInfo> judge_pairs_start(const Run& run, double loss);

}  // namespace lft::train
