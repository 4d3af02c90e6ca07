// The text of progress lines: durations, and a bar before a line.
#pragma once
#include <cstdint>
#include <string>

namespace lft {

/// 0:07, 12:34, 1:02:03, 2d 03:04.
std::string duration_text(double seconds);
/// "[####......] " before a line, green on a terminal, if there is room; at most width - 1 columns.
std::string with_bar(const std::string& line, int64_t done, int64_t total, int64_t width);
/// The minimum number of columns of a bar, without its brackets.
constexpr int64_t kShortestBar = 6;

}  // namespace lft
