// The warnings at the end of a run on preference pairs, judged by the figures of its steps.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "kernels/common/error.h"
#include "src/train/run/run.h"

namespace lft::train {

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
