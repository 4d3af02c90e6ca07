#include "src/report/curves.h"

#include <algorithm>
#include <cmath>

#include "src/base/text.h"

namespace lft::report {
namespace {

constexpr double kOverfits = 0.03, kRose = 0.05, kMoved = 0.01;

}  // namespace

Part part_of(const Series& series, size_t begin, size_t count) {
  Part part;
  const auto n = static_cast<double>(count);
  for (size_t i = begin; i < begin + count; ++i) part.mean += series[i].y / n;
  for (size_t i = begin; i < begin + count; ++i)
    part.variance_of_mean += (series[i].y - part.mean) * (series[i].y - part.mean) / (n * (n - 1));
  return part;
}

double error_of(const Part& a, const Part& b) {
  return std::sqrt(a.variance_of_mean + b.variance_of_mean);
}

Ends ends_of(const Series& series) {
  const size_t size = series.size();
  if (size < kFewestSteps) return {};
  const size_t count = std::clamp<size_t>(size / 10, 3, 200);
  return {.first = part_of(series, 0, count), .last = part_of(series, size - count, count)};
}

Series finite_series(const Metrics& metrics, const char* key) {
  Series series = series_of(metrics, key);
  std::erase_if(series, [](const Point& point) { return !std::isfinite(point.y); });
  return series;
}

std::string divergence(const Ends& losses) {
  if (!(losses.rise() > kRose * losses.first.mean && losses.rise() > 3 * losses.error())) return "";
  return "diverged: the training loss rose from " + loss_text(losses.first.mean) + " to " +
         loss_text(losses.last.mean);
}

bool moves(const Ends& losses) {
  return std::abs(losses.rise()) + 3 * losses.error() >= kMoved * losses.first.mean;
}

std::optional<Point> turning_point(const Series& losses, const Series& held_out) {
  if (held_out.size() < 2) return std::nullopt;
  const Point best = *std::ranges::min_element(held_out, {}, &Point::y);
  if (held_out.back().y <= (1 + kOverfits) * best.y) return std::nullopt;
  const Series smoothed = smooth(losses);
  const auto then =
      std::ranges::find_if(smoothed, [&](const Point& point) { return point.x >= best.x; });
  if (then == smoothed.end() || smoothed.back().y >= then->y) return std::nullopt;
  return best;
}

std::string turn_text(const Point& best, const Series& held_out, const RunEnd& end) {
  return "the held-out loss rose from " + loss_text(best.y) + " at " + step_text(best.x) + " to " +
         loss_text(held_out.back().y) + " while the training loss fell; " +
         (end.kept_step >= 0
              ? "the result has the weights of step " + with_commas(end.kept_step)
              : "train.keep_best: eval_loss keeps the weights of the best evaluation");
}

std::string loss_text(double loss) { return format_number(loss, "%.3g"); }
std::string step_text(double step) { return "step " + format_number(step, "%.0f"); }

}  // namespace lft::report
