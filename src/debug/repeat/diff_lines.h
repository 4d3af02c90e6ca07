// The result of `lft debug diff` as text.
#pragma once
#include <string>
#include <vector>

#include "src/debug/repeat/diff.h"

namespace lft::debug {

/// Lines to print; the last ones describe where and how the runs diverge, or that they do not.
std::vector<std::string> diff_lines(const RunDiff& diff);

/// One line: "step 7: other samples".
std::string parting_text(const RunDiff& diff);

}  // namespace lft::debug
