#include "src/report/verdict.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "src/base/text.h"

namespace lft::report {
namespace {

constexpr size_t kFewestSteps = 10;
constexpr double kRose = 0.05, kNearZero = 0.05, kMoved = 0.01, kHeldOutFell = 0.02;
constexpr double kImagesMatter = 0.02, kOverfits = 0.03, kFallsOfAll = 0.04, kFallsOfItself = 0.01;

std::string loss_text(double loss) { return format_number(loss, "%.3g"); }
std::string step_text(double step) { return "step " + format_number(step, "%.0f"); }

struct Part {
  double mean = 0, variance_of_mean = 0;
};
Part part_of(const Series& series, size_t begin, size_t count) {
  Part part;
  const auto n = static_cast<double>(count);
  for (size_t i = begin; i < begin + count; ++i) part.mean += series[i].y / n;
  for (size_t i = begin; i < begin + count; ++i)
    part.variance_of_mean += (series[i].y - part.mean) * (series[i].y - part.mean) / (n * (n - 1));
  return part;
}

/// The standard error of a difference.
double error_of(const Part& a, const Part& b) {
  return std::sqrt(a.variance_of_mean + b.variance_of_mean);
}

Series finite_losses(const Metrics& metrics) {
  Series losses = series_of(metrics, "loss");
  std::erase_if(losses, [](const Point& point) { return !std::isfinite(point.y); });
  return losses;
}

struct Curves {
  Series losses, held_out;
  Part first, last;
  double fall() const { return first.mean - last.mean; }
  double error() const { return error_of(first, last); }
  /// Relative to the first evaluation; 0 with fewer than two.
  double held_out_fall() const {
    if (held_out.size() < 2) return 0;
    return (held_out.front().y - held_out.back().y) / held_out.front().y;
  }
};

Curves curves_of(const Metrics& metrics) {
  Curves curves{.losses = finite_losses(metrics),
                .held_out = eval_series(metrics, "eval_loss"),
                .first = {},
                .last = {}};
  const size_t size = curves.losses.size();
  if (size < kFewestSteps) return curves;
  const size_t count = std::clamp<size_t>(size / 10, 3, 200);
  curves.first = part_of(curves.losses, 0, count);
  curves.last = part_of(curves.losses, size - count, count);
  return curves;
}

/// "the training loss fell from 3.1 to 0.09, the held-out loss is 0.11".
std::string course(const Curves& curves) {
  const auto change = [](const std::string& name, double from, double to) {
    return "the " + name + " loss " + (to < from ? "fell" : "rose") + " from " + loss_text(from) +
           " to " + loss_text(to);
  };
  std::string text = change("training", curves.first.mean, curves.last.mean);
  if (curves.held_out.empty()) return text;
  const double from = curves.held_out.front().y, to = curves.held_out.back().y;
  return text + ", " +
         (curves.held_out.size() == 1 ? "the held-out loss is " + loss_text(to)
                                      : change("held-out", from, to));
}

/// Empty if the images matter, or were not compared.
std::string images_clause(const Metrics& metrics) {
  const io::Json* const event = last_event(metrics, "images");
  if (event == nullptr) return "";
  const auto number = [&](const char* key) {
    const auto value = event->find(key);
    return value != event->end() && value->is_number() ? value->get<double>() : std::nan("");
  };
  const double own = number("own_loss"), other = number("other_loss"), grey = number("grey_loss");
  const double most = std::fmax(other, grey);  // ignores one that is missing
  if (!std::isfinite(own) || !std::isfinite(most) || most - own >= kImagesMatter * own) return "";
  return "the loss is " + loss_text(own) + " with the right images" +
         (std::isfinite(other) ? ", " + loss_text(other) + " with swapped ones" : "") + " and " +
         loss_text(grey) + " with blank ones";
}

/// The evaluation after which the held-out loss rose while the training loss fell.
std::optional<Point> turning_point(const Curves& curves) {
  if (curves.held_out.size() < 2) return std::nullopt;
  const Point best = *std::ranges::min_element(curves.held_out, {}, &Point::y);
  if (curves.held_out.back().y <= (1 + kOverfits) * best.y) return std::nullopt;
  const Series smoothed = smooth(curves.losses);
  const auto then =
      std::ranges::find_if(smoothed, [&](const Point& point) { return point.x >= best.x; });
  if (then == smoothed.end() || smoothed.back().y >= then->y) return std::nullopt;
  return best;
}

bool still_falls(const Curves& curves) {
  const size_t size = curves.losses.size(), count = size / 5;
  if (count < 3 || curves.fall() <= 0) return false;
  const Part before = part_of(curves.losses, size - 2 * count, count),
             now = part_of(curves.losses, size - count, count);
  const double drop = before.mean - now.mean;
  const bool lowest =
      curves.held_out.empty() ||
      curves.held_out.back().y <= std::ranges::min_element(curves.held_out, {}, &Point::y)->y;
  return lowest && drop > kFallsOfAll * curves.fall() && drop > kFallsOfItself * now.mean &&
         drop > 2 * error_of(before, now);
}

/// A verdict whose sentence has neither a capital nor a full stop.
Verdict judge_curves(const Metrics& metrics, const RunEnd& end) {
  const Curves curves = curves_of(metrics);
  const Part &first = curves.first, &last = curves.last;
  if (curves.losses.size() < kFewestSteps) {
    return {"unjudged", "too short to judge: " + std::to_string(curves.losses.size()) +
                            (curves.losses.size() == 1 ? " step" : " steps")};
  }
  const double rise = -curves.fall(), error = curves.error();
  if (rise > kRose * first.mean && rise > 3 * error)
    return {"diverged", "diverged: the training loss rose from " + loss_text(first.mean) + " to " +
                            loss_text(last.mean)};
  if (first.mean < kNearZero)
    return {"known", "nothing left to learn: the training loss was " + loss_text(first.mean) +
                         " from the start"};
  const std::string from_to = "the training loss was " + loss_text(first.mean) +
                              " at the start and " + loss_text(last.mean) + " at the end";
  if (last_event(metrics, "nothing_learnt") != nullptr ||
      std::abs(rise) + 3 * error < kMoved * first.mean)
    return {"nothing_learnt", "nothing learnt: " + from_to};
  if (curves.fall() < 2 * error && curves.held_out_fall() < kHeldOutFell)
    return {"unclear", "no clear progress: " + from_to +
                           ", which is within the scatter of its "
                           "steps"};
  if (const std::string images = images_clause(metrics); !images.empty())
    return {"ignores_images", "ignores its images: " + images};
  if (const std::optional<Point> best = turning_point(curves)) {
    return {"overfits",
            "overfits: the held-out loss rose from " + loss_text(best->y) + " at " +
                step_text(best->x) + " to " + loss_text(curves.held_out.back().y) +
                " while the training loss fell; " +
                (end.kept_step >= 0
                     ? "the result has the weights of step " + with_commas(end.kept_step)
                     : "train.keep_best: eval_loss keeps the weights of the best evaluation")};
  }
  if (still_falls(curves))
    return {"still_falling", "learnt, and the loss still falls: " + course(curves) +
                                 "; more steps may lower it "
                                 "further"};
  return {"learnt", "learnt: " + course(curves)};
}

std::string sentence(std::string text) {
  if (!text.empty() && text[0] >= 'a' && text[0] <= 'z') text[0] = static_cast<char>(text[0] - 32);
  return text + ".";
}

std::string failure(const Metrics& metrics, const RunEnd& end) {
  if (!end.reason.empty()) return end.reason;
  const io::Json* const event = last_event(metrics, "stopped");
  const auto reason = event == nullptr ? io::Json::const_iterator() : event->find("reason");
  return event != nullptr && reason != event->end() && reason->is_string()
             ? reason->get<std::string>()
             : "the reason was not recorded";
}

}  // namespace

Verdict judge_run(const Metrics& metrics, const RunEnd& end) {
  const int64_t done = metrics.last_step();
  const std::string place = (done == 0 ? "before step 1" : "after step " + with_commas(done)) +
                            " of " + with_commas(std::max(end.total_steps, done));
  if (end.state == RunState::kFailed)
    return {"failed", sentence("failed " + place + ": " + failure(metrics, end))};
  const Verdict verdict = judge_curves(metrics, end);
  if (end.state == RunState::kDone) return {verdict.kind, sentence(verdict.sentence)};
  const bool running = end.state == RunState::kRunning;
  const std::string state =
      running ? "in progress, " + place : "stopped " + place + "; --resume continues it";
  const bool shown = verdict.kind == "diverged" || verdict.kind == "overfits" ||
                     (!running && verdict.kind != "unjudged");
  if (shown)
    return {running ? verdict.kind : "stopped", sentence(state) + " " + sentence(verdict.sentence)};
  const bool known = verdict.kind != "unjudged";
  return {running ? "running" : "stopped",
          sentence(state + (known ? ": " + course(curves_of(metrics)) + " so far" : ""))};
}

std::string best_figure(const Metrics& metrics, const std::string& figure) {
  const bool by_loss = figure.empty();
  const Series evals = eval_series(metrics, by_loss ? "eval_loss" : figure);
  if (!evals.empty()) {
    const Point best = by_loss ? *std::ranges::min_element(evals, {}, &Point::y)
                               : *std::ranges::max_element(evals, {}, &Point::y);
    std::string name = by_loss ? "held-out loss" : figure;
    std::ranges::replace(name, '_', ' ');
    return name + " " + format_number(best.y, "%.4g") + " (" + step_text(best.x) + ")";
  }
  const Series smoothed = smooth(finite_losses(metrics));
  if (smoothed.empty()) return "";
  const Point best = *std::ranges::min_element(smoothed, {}, &Point::y);
  return "training loss " + format_number(best.y, "%.4g") + " (" + step_text(best.x) + ")";
}

}  // namespace lft::report
