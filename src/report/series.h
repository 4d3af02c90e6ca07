// Curves reduced to a size that can be drawn.
#pragma once
#include <cstddef>
#include <vector>

namespace lft::report {

struct Point {
  double x = 0, y = 0;  // y is NaN where the run had no finite value
};
using Series = std::vector<Point>;  // x rises

constexpr size_t kMaxPoints = 2000;

/// Reduces a curve to at most max_points: the lowest and the highest point of equal intervals, so
/// that no spike is lost, and the first and the last point.
Series thin(const Series& series, size_t max_points);
/// Exponential moving average over 2 % of the length (at least 5 points), with bias correction.
/// Non-finite points are ignored.
Series smooth(const Series& series);

}  // namespace lft::report
