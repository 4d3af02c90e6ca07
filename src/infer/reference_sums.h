// Log-probabilities of whole answers, as objectives of preferences need them.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "models/family/model.h"
#include "models/objective/forward_loss.h"
#include "src/data/batch.h"
#include "src/data/dataset.h"
#include "src/data/encode_options.h"

namespace lft::infer {

/// The log-probability of each sample's answer, summed over its supervised tokens in double
/// precision; 0 without any. One pass, without gradients.
std::vector<double> answer_sums(const objective::ForwardContext& context, family::Model& model,
                                const data::BatchLayout& layout,
                                const std::vector<data::Sample>& samples);

/// The samples of a global batch with the answer of the next one instead of their own; the last one
/// takes the answer of the first. The micro-batches are the same.
std::vector<std::vector<data::Sample>> mismatched(
    const std::vector<std::vector<data::Sample>>& micro, const data::EncodeOptions& encode);

/// Objective::uses_kl(): the mean of the log ratios, at least 0. NaN stays NaN.
double kl_estimate(const std::vector<double>& log_ratios);

struct ReferenceSumOptions {
  at::ScalarType compute = at::kFloat;
  int64_t workers = 1;
  std::string phase;                            // shown meanwhile
  std::function<bool(int64_t row)> wants = {};  // null: all rows; of a group all rows or none
  int64_t group = 0;  // rows of a global batch; above 0: also sums of mismatched answers
};
/// Of each row the sum of its answer, of a pair then that of the rejected one, then with
/// `group` that of mismatched(). Each row is a separate batch, so that the sums do not depend on
/// how batches are made; one that is not finite in `compute` is computed in FP32, and is kNumeric
/// if it is not finite there. NaN for bad rows, 0 for rows that are not wanted. Throws Stopped
/// after a signal.
std::vector<double> reference_sums(family::Model model, const data::Dataset& rows,
                                   const data::EncodeOptions& encode,
                                   const ReferenceSumOptions& options);

}  // namespace lft::infer
