#include "src/report/series.h"

#include <algorithm>
#include <cmath>

namespace lft::report {

Series thin(const Series& series, size_t max_points) {
  if (series.size() <= max_points || max_points < 4) return series;
  Series out = {series.front()};
  const size_t inner = series.size() - 2, stretches = (max_points - 2) / 2;
  for (size_t s = 0; s < stretches; ++s) {
    const size_t begin = 1 + inner * s / stretches, end = 1 + inner * (s + 1) / stretches;
    size_t low = end, high = end;
    for (size_t i = begin; i < end; ++i) {
      if (!std::isfinite(series[i].y)) continue;
      if (low == end || series[i].y < series[low].y) low = i;
      if (high == end || series[i].y > series[high].y) high = i;
    }
    if (low == end) {
      out.push_back(series[begin]);  // no finite value: the gap is kept
      continue;
    }
    out.push_back(series[std::min(low, high)]);
    if (low != high) out.push_back(series[std::max(low, high)]);
  }
  out.push_back(series.back());
  return out;
}

Series smooth(const Series& series) {
  const double window = std::max(5.0, 0.02 * static_cast<double>(series.size()));
  const double keep = 1 - 1 / window;
  Series out;
  double sum = 0, weight = 0;
  for (const Point& point : series) {
    if (!std::isfinite(point.y)) continue;
    sum = keep * sum + (1 - keep) * point.y;
    weight = keep * weight + (1 - keep);
    out.push_back({point.x, sum / weight});
  }
  return out;
}

}  // namespace lft::report
