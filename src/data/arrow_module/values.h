// Converts a row of Arrow arrays to a row of a data file: JSON and images.
#pragma once
#include <arrow/api.h>

#include <memory>

#include "src/data/arrow_module/module.h"

namespace lft::data {

/// Throws ArrowFailure, without a row index, for a row beyond the limits or an empty one.
ArrowRow arrow_row(const arrow::RecordBatch& batch, int64_t index, const ArrowLimits& limits);

}  // namespace lft::data
