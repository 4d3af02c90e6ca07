// Finds the rows of a step's batch that are non-finite by themselves, and their first bad tokens.
#pragma once
#include <string>
#include <vector>

#include "src/train/explain/tensor_facts.h"
#include "src/train/step/step.h"

namespace lft::train {

struct BadRow {
  size_t micro_batch = 0, row = 0;  // positions in StepSamples::micro
  std::string id = {};
  /// In input_ids: the first token for which a module's output, or the gradient of its loss, is not
  /// finite; -1: not found.
  int64_t position = -1;
  int64_t image = -1;       // of the row, the first with non-finite features; -1: none
  std::string module = {};  // with the first bad output; empty: the loss or a gradient
};

struct BadRows {
  std::vector<BadRow> rows;
  size_t looked_at = 0;  // a pair counts once
};

/// The settings of the step, without its samples.
struct RowPasses {
  objective::ForwardContext context;  // each row uses its micro-batch's dropout position
  std::vector<NamedTensor> parameters;
  double loss_scale = 1;
};

/// Runs each row of these micro-batches alone, forward and backward, with its loss divided as in
/// the step. For a bad row with only finite module outputs whose loss is a sum over tokens, the
/// number of supervised tokens is increased until the first that makes it bad. A pair is one row,
/// named by its bad side. Changes no state.
BadRows find_bad_rows(family::Model& model, const data::StepSamples& samples,
                      const std::vector<size_t>& micro_batches, const RowPasses& passes);

/// Whether some rows are bad and others are not: a sample is the cause, not the weights.
bool names_a_row(const BadRows& bad);
/// "digit-0058, position 17"; the count if several rows are bad, and a note that no sample is the
/// cause if all or none are.
std::string bad_rows_text(const BadRows& bad);

}  // namespace lft::train
