// The training objective: the only code that turns log-probabilities into a loss. Shape letter: k
// supervised tokens of a batch, in row-major order of its labels.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "models/family/batch.h"

namespace lft::objective {

/// Counts over all micro-batches of a step, over all processes.
struct GlobalBatchCounts {
  int64_t supervised = 0;  // tokens
  int64_t rows = 0;
};

using Figures = std::vector<std::pair<std::string, double>>;  // by name

/// The loss of a step is the sum of terms() over its micro-batches, divided by normaliser() of the
/// whole global batch, so that it does not depend on the split into micro-batches. Objectives are
/// immutable and thread-safe.
class Objective {
 public:
  virtual ~Objective() = default;
  /// The batch's part of the sum: a float32 scalar, differentiable with respect to `logprobs_k`
  /// (natural log, float32). Exactly 0 without supervised tokens. `kl`: of the global batch, see
  /// uses_kl(); otherwise 0.
  virtual at::Tensor terms(const at::Tensor& logprobs_k, const family::Batch& batch,
                           double kl) const = 0;
  virtual int64_t normaliser(const GlobalBatchCounts& counts) const = 0;
  /// Consecutive rows that a micro-batch, and any part of it, contains together.
  virtual int64_t rows_together() const { return 1; }
  /// Whether terms() and figures() read batch.reference_n.
  virtual bool uses_reference() const { return false; }
  /// Whether the terms depend on an estimate of the KL divergence from the reference: the mean over
  /// the rows of a global batch of the log ratio of the next row's answer after this row's prompt
  /// (the last row takes the first one's answer), at least 0, without a gradient. Needs two rows.
  virtual bool uses_kl() const { return false; }
  /// Names of what a step reports in addition to its loss.
  virtual std::vector<std::string> figure_names() const { return {}; }
  /// Of each row or pair of the batch its loss and then the addends of these figures: double
  /// [units, 1 + addends], without a graph. Undefined without figures.
  virtual at::Tensor figures(const at::Tensor& /*logprobs_k*/, const family::Batch& /*batch*/,
                             double /*kl*/) const {
    return {};
  }
  /// The figures of `units` rows or pairs from the sums of their addends. A figure without a value
  /// is left out. The default implementation returns means, in the order of the names.
  virtual Figures means(std::span<const double> sums, int64_t units) const;
  /// Whether terms() is minus the sum of the log-probabilities, as the CUDA graphs of a pass and
  /// the losses per data source require.
  virtual bool sums_tokens() const { return false; }
};

/// Supervised fine-tuning: the mean negative log-likelihood of the supervised tokens.
const Objective& supervised_nll();

}  // namespace lft::objective
