// Concatenation of several data sets.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "src/data/dataset.h"

namespace lft::data {

/// The rows of the first data set, then those of the second, and so on. With `as_sources` the
/// source() of a row and of its sample is the number of its part; otherwise all are one source.
std::unique_ptr<Dataset> join_datasets(std::vector<std::unique_ptr<Dataset>> parts,
                                       bool as_sources);
/// The stem for the index of part `i` when the whole index is saved at `stem`.
std::string part_stem(const std::string& stem, size_t i);

}  // namespace lft::data
