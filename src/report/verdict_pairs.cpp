#include "src/report/verdict_pairs.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "src/base/text.h"
#include "src/report/curves.h"

namespace lft::report {
namespace {

constexpr const char *kAccuracy = "reward_accuracy", *kMargin = "reward_margin";
constexpr double kErrors = 2;

std::string percent(double share) { return format_number(100 * share, "%.3g") + "%"; }

std::optional<double> last_of(const Series& series) {
  return series.empty() ? std::nullopt : std::optional(series.back().y);
}

/// The mean of the last tenth of the steps, with its variance.
Part last_steps(const Metrics& metrics, const char* figure) {
  const Series steps = finite_series(metrics, figure);
  if (steps.size() >= kFewestSteps) return ends_of(steps).last;
  return steps.size() < 2 ? Part{.mean = last_of(steps).value_or(NAN)}
                          : part_of(steps, 0, steps.size());
}

/// The share of pairs whose chosen reward is the higher one, and its standard error; of rows of
/// KTO, which have none, the reward margin.
struct Accuracy {
  double mean = 0, error = 0, guess = 0.5;
  bool above_guess() const { return mean - guess > kErrors * error; }
};

bool has_accuracy(const Metrics& metrics) { return !finite_series(metrics, kAccuracy).empty(); }

Accuracy training_accuracy(const Metrics& metrics) {
  const bool known = has_accuracy(metrics);
  const Part part = last_steps(metrics, known ? kAccuracy : kMargin);
  return {part.mean, std::sqrt(part.variance_of_mean), known ? 0.5 : 0};
}

/// Of the last evaluation.
std::optional<Accuracy> held_out_accuracy(const Metrics& metrics) {
  const std::optional<double> mean = last_of(eval_series(metrics, kAccuracy)),
                              pairs = last_of(eval_series(metrics, "samples"));
  if (!mean || !pairs) return std::nullopt;
  return Accuracy{*mean, 0.5 / std::sqrt(std::max(*pairs, 1.0))};
}

double last_margin(const Metrics& metrics) {
  return last_of(eval_series(metrics, kMargin)).value_or(last_steps(metrics, kMargin).mean);
}

std::string change_text(const Metrics& metrics, const std::string& name, const char* figure) {
  const Ends ends = ends_of(finite_series(metrics, figure));
  return name + " went from " + loss_text(ends.first.mean) + " to " + loss_text(ends.last.mean);
}

/// Whether the last evaluation has a lower accuracy than the one at that step.
bool fell_since(const Series& accuracies, double step) {
  const auto then = std::ranges::find(accuracies, step, &Point::x);
  return then == accuracies.end() || accuracies.back().y <= then->y;
}

}  // namespace

bool of_preferences(const Metrics& metrics) {
  return !metrics.steps.empty() && metrics.steps.rbegin()->second.contains(kMargin);
}

std::string preference_course(const Metrics& metrics) {
  if (metrics.steps.empty()) return "";
  if (!has_accuracy(metrics)) return "the reward margin is " + loss_text(last_margin(metrics));
  const std::string training = percent(training_accuracy(metrics).mean);
  const std::optional<Accuracy> held_out = held_out_accuracy(metrics);
  return "the chosen answer has the higher reward in " +
         (held_out
              ? percent(held_out->mean) + " of the held-out pairs (" + training + " in training)"
              : training + " of the training pairs") +
         ", the reward margin is " + loss_text(last_margin(metrics));
}

std::pair<std::string, std::string> preferred_fact(const Metrics& metrics) {
  const std::string margin = loss_text(last_margin(metrics));
  if (!has_accuracy(metrics)) return {"reward margin", margin};
  const std::optional<double> pairs = last_of(eval_series(metrics, "samples"));
  const std::optional<Accuracy> held_out = held_out_accuracy(metrics);
  return {"reward accuracy",
          (held_out ? percent(held_out->mean) + " of " + format_number(*pairs, "%.0f") +
                          " held-out pairs"
                    : percent(training_accuracy(metrics).mean) + " of the last training pairs") +
              ", margin " + margin};
}

Verdict judge_preferences(const Metrics& metrics, const RunEnd& end) {
  const std::string course = preference_course(metrics);
  const Series losses = finite_series(metrics, "loss"),
               held_out = eval_series(metrics, "eval_loss");
  const Ends loss = ends_of(losses);
  const Accuracy training = training_accuracy(metrics);
  const std::optional<Accuracy> evaluated = held_out_accuracy(metrics);
  if (last_event(metrics, "likelihood_displacement") != nullptr)
    return {"displaced", "both answers become less likely (likelihood displacement): " +
                             change_text(metrics, "the chosen reward", "rewards_chosen") + ", " +
                             change_text(metrics, "the rejected one", "rewards_rejected") + "; " +
                             course};
  if (last_event(metrics, "accuracy_at_half") != nullptr)
    return {"at_half", "chosen and rejected answers are not told apart: " + course};
  if (const std::string rise = divergence(loss); !rise.empty()) return {"diverged", rise};
  if (last_event(metrics, "nothing_learnt") != nullptr || !moves(loss))
    return {"nothing_learnt", "nothing learnt: the training loss was " +
                                  loss_text(loss.first.mean) + " at the start and " +
                                  loss_text(loss.last.mean) + " at the end, " + course};
  if (training.above_guess() && evaluated && !evaluated->above_guess())
    return {"overfits", "only the training pairs are learnt: " + course};
  if (!training.above_guess() && !(evaluated && evaluated->above_guess()))
    return {"unclear", "no clear preference: " + course};
  const std::optional<Point> best = turning_point(losses, held_out);
  if (best && fell_since(eval_series(metrics, kAccuracy), best->x))
    return {"overfits", "overfits: " + turn_text(*best, held_out, end) + "; " + course};
  return {"learnt", "learnt: " + course};
}

}  // namespace lft::report
