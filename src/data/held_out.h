// A share of a data set's rows held out from training, chosen by a seed.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "src/data/dataset.h"

namespace lft::data {

/// The rows to evaluate on, by index, in order: about `share` of them, never more, at least one
/// row each on both sides. Rows that show an image of one another, or say the same, stay together.
/// A function of rows, share and seed. kInput where no such part can be cut.
std::vector<int64_t> held_out_rows(const Dataset& dataset, double share, uint64_t seed);

/// Some rows of a data set as one of their own. Its hash is of the whole and of which rows these
/// are.
std::unique_ptr<Dataset> select_rows(std::shared_ptr<const Dataset> whole,
                                     std::vector<int64_t> rows);
/// The same of a data set that outlives it.
std::unique_ptr<Dataset> select_rows(const Dataset& whole, std::vector<int64_t> rows);

/// A data set in two.
struct HeldOut {
  std::unique_ptr<Dataset> train, eval;
};
HeldOut hold_out(std::shared_ptr<const Dataset> whole, double share, uint64_t seed);

/// One JSON line a row, with its id and its place in the file.
std::string row_list(const Dataset& dataset);

}  // namespace lft::data
