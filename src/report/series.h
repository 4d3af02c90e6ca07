// Curves made small enough to draw. Knows no file and no chart.
#pragma once
#include <cstddef>
#include <vector>

namespace lft::report {

struct Point {
  double x = 0, y = 0;  // y is NaN where the run had no finite value
};
using Series = std::vector<Point>;  // x rises

constexpr size_t kMaxPoints = 2000;

/// At most max_points: of equal stretches the lowest and the highest point each (so no spike is
/// lost); the first and the last point stay.
Series thin(const Series& series, size_t max_points);
/// Running mean that forgets over 2 % of the length (at least 5 points), corrected for its start.
/// Non-finite points are passed over.
Series smooth(const Series& series);

}  // namespace lft::report
