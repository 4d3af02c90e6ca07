// A row of Arrow arrays as a row of a data file: JSON and images.
#pragma once
#include <arrow/api.h>

#include <memory>

#include "src/data/arrow_module/module.h"

namespace lft::data {

/// Throws ArrowFailure where no column holds a dialogue.
void check_columns(const arrow::Schema& schema);

/// Throws ArrowFailure, without a row, for what is beyond the limits or no row at all.
ArrowRow arrow_row(const arrow::RecordBatch& batch, int64_t index, const ArrowLimits& limits);

}  // namespace lft::data
