// Numbers of every layer over the steps, as a table for the report: one row for each layer, in the
// order of the forward pass.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

#include "src/io/json.h"

namespace lft::report {

constexpr size_t kMaxColumns = 200;

/// `records`: by step, the event's line with "layers", an object of numbers by layer name (null:
/// not finite). {"rows": short names, "names": layers, "steps": [...], "values": [a row: [a number,
/// or null where not finite, or false where absent]]}; more than kMaxColumns steps are sampled
/// evenly, including the first and the last. null without records.
io::Json layer_map(const std::map<int64_t, io::Json>& records);

}  // namespace lft::report
