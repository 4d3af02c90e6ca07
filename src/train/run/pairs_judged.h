// What a run on preference pairs is warned of: a first loss that is not that of its reference,
// from which it begins, and at the end the course of its figures.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

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

struct PairWarning {
  std::string kind;  // of the event
  ErrorInfo info;
};

/// `steps`: for each figure its value at each step. Means of the first and the last third of at
/// least ten steps are compared, with three standard errors:
///   likelihood_displacement  reward_margin grows while rewards_chosen and rewards_rejected fall
///   accuracy_at_half         reward_accuracy of the last third does not differ from one half
std::vector<PairWarning> judge_pairs(const std::map<std::string, std::vector<double>>& steps,
                                     const std::string& where);
/// The same for a run; empty for one on single answers.
std::vector<PairWarning> judge_pairs(const Run& run);

}  // namespace lft::train
