// The report of `lft validate` as text and as JSON.
#pragma once
#include <string>

#include "src/debug/data/validate.h"
#include "src/io/json.h"

namespace lft::debug {

bool is_warning(DataFault fault);

std::string fault_slug(DataFault fault);  // "missing_image"

std::string fault_title(DataFault fault);  // "an image file that is not there"

/// The report as text, and as one JSON object.
std::string data_report_text(const DataReport& report);

io::Json data_report_json(const DataReport& report);

}  // namespace lft::debug
