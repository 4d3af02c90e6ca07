// The parts of a micro-batch that run one after the other, after it did not fit in memory.
#pragma once
#include <cstdint>
#include <vector>

#include "src/train/step/global_batch.h"

namespace lft::train {

/// At most `split` parts of whole groups of `together` rows.
std::vector<std::vector<data::Sample>> parts_of(const std::vector<data::Sample>& micro,
                                                int64_t split, int64_t together);
/// The number of parts of the first `count` micro-batches of all processes.
int64_t count_parts(const GlobalBatch& whole, int64_t count, int64_t split, int64_t together);

}  // namespace lft::train
