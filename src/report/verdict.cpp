#include "src/report/verdict.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "src/base/text.h"
#include "src/report/curves.h"
#include "src/report/verdict_pairs.h"

namespace lft::report {
namespace {

constexpr double kNearZero = 0.05, kHeldOutFell = 0.02;
constexpr double kImagesMatter = 0.02, kFallsOfAll = 0.04, kFallsOfItself = 0.01;

struct Curves {
  Series losses, held_out;
  Ends ends;  // of the losses
  double fall() const { return -ends.rise(); }
  /// Relative to the first evaluation; 0 with fewer than two.
  double held_out_fall() const {
    if (held_out.size() < 2) return 0;
    return (held_out.front().y - held_out.back().y) / held_out.front().y;
  }
};

Curves curves_of(const Metrics& metrics) {
  Curves curves{.losses = finite_series(metrics, "loss"),
                .held_out = eval_series(metrics, "eval_loss"),
                .ends = {}};
  curves.ends = ends_of(curves.losses);
  return curves;
}

/// "the training loss fell from 3.1 to 0.09, the held-out loss is 0.11".
std::string course(const Curves& curves) {
  const auto change = [](const std::string& name, double from, double to) {
    return "the " + name + " loss " + (to < from ? "fell" : "rose") + " from " + loss_text(from) +
           " to " + loss_text(to);
  };
  std::string text = change("training", curves.ends.first.mean, curves.ends.last.mean);
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

/// As judge_curves(), of a run on single answers.
Verdict judge_losses(const Metrics& metrics, const RunEnd& end) {
  const Curves curves = curves_of(metrics);
  const Part &first = curves.ends.first, &last = curves.ends.last;
  if (const std::string rise = divergence(curves.ends); !rise.empty()) return {"diverged", rise};
  if (first.mean < kNearZero)
    return {"known", "nothing left to learn: the training loss was " + loss_text(first.mean) +
                         " from the start"};
  const std::string from_to = "the training loss was " + loss_text(first.mean) +
                              " at the start and " + loss_text(last.mean) + " at the end";
  if (last_event(metrics, "nothing_learnt") != nullptr || !moves(curves.ends))
    return {"nothing_learnt", "nothing learnt: " + from_to};
  if (curves.fall() < 2 * curves.ends.error() && curves.held_out_fall() < kHeldOutFell)
    return {"unclear", "no clear progress: " + from_to +
                           ", which is within the scatter of its "
                           "steps"};
  if (const std::string images = images_clause(metrics); !images.empty())
    return {"ignores_images", "ignores its images: " + images};
  if (const std::optional<Point> best = turning_point(curves.losses, curves.held_out))
    return {"overfits", "overfits: " + turn_text(*best, curves.held_out, end)};
  if (still_falls(curves))
    return {"still_falling", "learnt, and the loss still falls: " + course(curves) +
                                 "; more steps may lower it "
                                 "further"};
  return {"learnt", "learnt: " + course(curves)};
}

/// A verdict whose sentence has neither a capital nor a full stop.
Verdict judge_curves(const Metrics& metrics, const RunEnd& end) {
  const size_t steps = finite_series(metrics, "loss").size();
  if (steps < kFewestSteps) {
    return {"unjudged",
            "too short to judge: " + std::to_string(steps) + (steps == 1 ? " step" : " steps")};
  }
  return of_preferences(metrics) ? judge_preferences(metrics, end) : judge_losses(metrics, end);
}

std::string sentence(std::string text) {
  if (!text.empty() && text[0] >= 'a' && text[0] <= 'z') text[0] = static_cast<char>(text[0] - 32);
  return text + ".";
}

std::string course_of(const Metrics& metrics) {
  return of_preferences(metrics) ? preference_course(metrics) : course(curves_of(metrics));
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
          sentence(state + (known ? ": " + course_of(metrics) + " so far" : ""))};
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
  const Series smoothed = smooth(finite_series(metrics, "loss"));
  if (smoothed.empty()) return "";
  const Point best = *std::ranges::min_element(smoothed, {}, &Point::y);
  return "training loss " + format_number(best.y, "%.4g") + " (" + step_text(best.x) + ")";
}

}  // namespace lft::report
