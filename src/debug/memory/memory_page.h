// The HTML page of `lft debug memory`.
#pragma once
#include <string>
#include <vector>

#include "src/debug/memory/memory_parts.h"

namespace lft::debug {

/// One HTML file that works offline: a timeline stacked by use, and tables of its peak. `title` and
/// `under` are text, which is escaped.
std::string memory_page(const std::string& title, const std::string& under,
                        const MemoryPicture& picture, const std::vector<StepMarks>& steps);

}  // namespace lft::debug
