// Splits a data set into rows for training and rows for evaluation, by a seed.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "src/data/dataset.h"

namespace lft::data {

/// The indices of the rows to evaluate on, in order: at most `share` of all rows, and at least one
/// row in each split. Rows that share an image or have the same content are in the same split. The
/// result is a function of rows, share and seed. kInput if no such split exists.
std::vector<int64_t> held_out_rows(const Dataset& dataset, double share, uint64_t seed);

/// Some rows of a data set as a separate data set. Its hash covers the whole data set and the
/// selection.
std::unique_ptr<Dataset> select_rows(std::shared_ptr<const Dataset> whole,
                                     std::vector<int64_t> rows);
/// The same for a data set that outlives the result.
std::unique_ptr<Dataset> select_rows(const Dataset& whole, std::vector<int64_t> rows);

/// Both splits of a data set.
struct HeldOut {
  std::unique_ptr<Dataset> train, eval;
};
HeldOut hold_out(std::shared_ptr<const Dataset> whole, double share, uint64_t seed);

/// One JSON line per row, with its id and its position in the file.
std::string row_list(const Dataset& dataset);

}  // namespace lft::data
