// The HTML page of `lft debug memory`.
#pragma once
#include <string>
#include <vector>

#include "src/debug/memory/memory_parts.h"

namespace lft::debug {

/// The picture: one HTML file that works offline, a timeline stacked by use, and the tables of its
/// peak. `title` and `under` are text; all of it is escaped.
std::string memory_page(const std::string& title, const std::string& under,
                        const MemoryPicture& picture, const std::vector<StepMarks>& steps);

}  // namespace lft::debug
