// Which rows of a step's batch are not finite by themselves, and from which of their tokens on.
#pragma once
#include <string>
#include <vector>

#include "src/train/explain/tensor_facts.h"
#include "src/train/step/step.h"

namespace lft::train {

struct BadRow {
  size_t micro_batch = 0, row = 0;  // places in StepSamples::micro
  std::string id = {};
  /// In input_ids: the first token whose output of a module, or the gradient of whose loss, is not
  /// finite; -1: none was found.
  int64_t position = -1;
  int64_t image = -1;       // of the row, the first whose features are not finite; -1: none
  std::string module = {};  // whose output was the first; empty: the loss or a gradient was
};

struct BadRows {
  std::vector<BadRow> rows;
  size_t looked_at = 0;
};

/// How the step ran, without its samples.
struct RowPasses {
  objective::ForwardContext context;  // each row runs at its micro-batch's dropout position
  std::vector<NamedTensor> parameters;
  double loss_scale = 1;
};

/// Runs each row of these micro-batches alone, forward and backward, its loss divided as in the
/// step. Of a bad row whose modules' outputs are all finite, ever more supervised tokens are run,
/// until the first that makes it bad. Moves nothing.
BadRows find_bad_rows(family::Model& model, const data::StepSamples& samples,
                      const std::vector<size_t>& micro_batches, const RowPasses& passes);

/// Whether some rows are at fault and others are not: a sample is, not the weights.
bool names_a_row(const BadRows& bad);
/// "digit-0058, position 17"; where several are bad how many, and where all are, that no sample is
/// at fault. Where none is bad by itself it says so.
std::string bad_rows_text(const BadRows& bad);

}  // namespace lft::train
