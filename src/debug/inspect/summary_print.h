// The table of `lft summary`.
#pragma once
#include <string>
#include <vector>

#include "src/debug/inspect/summary.h"

namespace lft::debug {

/// The table with equal layers in one row, a blank line, and the totals.
std::vector<std::string> summary_lines(const Summary& summary);

}  // namespace lft::debug
