// The log-probabilities of pairs of answers under one model.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "models/family/model.h"
#include "src/data/dataset.h"
#include "src/data/encode_options.h"

namespace lft::infer {

struct PairSumOptions {
  at::ScalarType compute = at::kFloat;
  int64_t workers = 1;
  std::string phase;                            // shown meanwhile
  std::function<bool(int64_t row)> wants = {};  // null: all rows
};
/// The log-probability of each answer, summed over its supervised tokens in double precision:
/// [2 rows], the chosen answer of a row before its rejected one. Each pair is a separate batch,
/// so the sums do not depend on how batches are made. NaN for bad rows, 0 for rows that are not
/// wanted. Throws Stopped after a signal.
std::vector<double> pair_sums(family::Model model, const data::Dataset& rows,
                              const data::EncodeOptions& encode, const PairSumOptions& options);

}  // namespace lft::infer
