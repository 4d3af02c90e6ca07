// What a verdict reads from curves: means over parts of them, and where they turn.
#pragma once
#include <cstddef>
#include <optional>
#include <string>

#include "src/report/read_metrics.h"
#include "src/report/series.h"
#include "src/report/verdict.h"

namespace lft::report {

constexpr size_t kFewestSteps = 10;  // of a verdict

struct Part {
  double mean = 0, variance_of_mean = 0;
};
/// Of `count` points, at least two.
Part part_of(const Series& series, size_t begin, size_t count);
/// The standard error of a difference.
double error_of(const Part& a, const Part& b);

/// The first and the last tenth of a curve's points: at least 3, at most 200.
struct Ends {
  Part first, last;
  double rise() const { return last.mean - first.mean; }
  double error() const { return error_of(first, last); }
};
/// Zeros for a curve of fewer than kFewestSteps points.
Ends ends_of(const Series& series);

/// A number of each step, without steps where it is missing or not finite.
Series finite_series(const Metrics& metrics, const char* key);

/// "diverged: the training loss rose from 2 to 3", if it did by 5% and three errors; else empty.
std::string divergence(const Ends& losses);
/// Whether the change of the training loss, with three errors, is above 1% of the first.
bool moves(const Ends& losses);

/// The evaluation with the lowest held-out loss, if the last one is more than 3% above it and the
/// smoothed training loss has fallen since.
std::optional<Point> turning_point(const Series& losses, const Series& held_out);
/// "the held-out loss rose from 1 at step 50 to 2 while the training loss fell", with what keeps
/// the best weights.
std::string turn_text(const Point& best, const Series& held_out, const RunEnd& end);

/// Numbers of a sentence.
std::string loss_text(double loss);
std::string step_text(double step);

}  // namespace lft::report
