// Numbers of every layer over the steps, as a table that a page can draw: a row a layer, in the
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
/// or null where not finite, or false where absent]]}; of more than kMaxColumns steps an even
/// choice, the first and the last among them. null without records.
io::Json layer_map(const std::map<int64_t, io::Json>& records);

}  // namespace lft::report
