#include "src/debug/isolate/overfit.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>

#include "src/base/errors.h"
#include "src/base/signals.h"
#include "src/base/text.h"
#include "src/debug/isolate/forward_faults.h"
#include "src/debug/isolate/overfit_batch.h"
#include "src/debug/isolate/overfit_settings.h"
#include "src/debug/isolate/overfit_suspects.h"
#include "src/io/files.h"
#include "src/recipe/roles.h"
#include "src/report/report.h"
#include "src/train/inputs/run_objective.h"
#include "src/train/machine/determinism.h"
#include "src/train/machine/device.h"

namespace lft::debug {
namespace {

constexpr int64_t kPrintEvery = 10, kProbeSteps = 50;
constexpr double kNearNats = 0.05, kNearShare = 0.05;
constexpr int kBarWidth = 48;
constexpr size_t kLastLosses = 10;  // their median is the final loss of a run
constexpr double kFalling = 0.02;   // from one tenth of the steps to the next: still falling
constexpr double kWayDone = 0.1;    // of the loss, to call a run unfinished

recipe::Recipe overfit_recipe(recipe::Recipe recipe, const OverfitOptions& options) {
  recipe.output_dir = options.out.empty() ? recipe.output_dir + "/debug-overfit" : options.out;
  recipe.data.workers = 1;
  recipe.data.eval.clear();
  recipe::strip_for_fit(recipe);
  recipe.train.max_steps = options.steps;
  return recipe;
}

double mean_of(std::vector<double>::const_iterator begin, size_t count) {
  return std::accumulate(begin, begin + static_cast<ptrdiff_t>(count), 0.0) /
         static_cast<double>(count);
}

/// Whether the last tenth of the losses (at least two) is clearly below the previous tenth, and the
/// total decrease is more than noise.
bool still_falls(const std::vector<double>& losses, double start, double lowest) {
  const size_t part = std::max<size_t>(2, losses.size() / 10);
  if (losses.size() < 3 * part || !(lowest < (1 - kWayDone) * start)) return false;
  const auto last = losses.end() - static_cast<ptrdiff_t>(part);
  return mean_of(last, part) < (1 - kFalling) * mean_of(last - static_cast<ptrdiff_t>(part), part);
}

/// The complete check of one model.
class Overfit {
 public:
  Overfit(train::Run& run, const recipe::Recipe& asked, const OverfitOptions& options)
      : run_(run),
        asked_(asked),
        options_(options),
        bench_(run),
        batch_(overfit_batch(run)),
        step_(step_options(run, options.hooks)) {
    for (const std::vector<data::Sample>& micro : batch_.micro)
      report_.supervised += train::supervised_tokens(micro);
    report_.samples = train::sample_ids(batch_);
    report_.floor = loss_floor(batch_);
    evidence_.largest_norms.resize(run.optimizer.slots().size(), 0);
    step_.gradients_ready = [this](int64_t step, train::Optimizer& optimizer) {
      if (options_.hooks.gradients_ready) options_.hooks.gradients_ready(step, optimizer);
      if (!first_taken_) keep_gradients(optimizer);
    };
  }

  OverfitReport run() {
    options_.print("overfit    " + std::to_string(report_.samples.size()) + " samples (" +
                   escape_text(join(report_.samples, ", ", 8), 400) + "), " +
                   std::to_string(report_.supervised) + " supervised tokens, " +
                   train::compute_name(run_.state.compute) + ", learning rate " +
                   format_number(run_.optimizer.groups().front().lr, "%g"));
    accuse(find_harmful_adapter(run_, batch_));
    const MeanLoss mean = independent_mean_loss(run_, batch_);
    report_.start = report_.lowest = mean.loss;
    report_.near_zero_below =
        report_.floor + std::max(kNearNats, kNearShare * (mean.loss - report_.floor));
    const TrialSteps steps = bench_.take(
        options_.steps, step_, [this] { return batch_; },
        [this](const train::StepOutcome& outcome) { record(outcome); });
    report_.stopped = steps.stopped;
    for (const double loss : report_.losses)
      report_.lowest = loss < report_.lowest ? loss : report_.lowest;
    report_.falling = still_falls(report_.losses, report_.start, report_.lowest);
    report_.signal = requested_signal();
    if (report_.signal == 0) look_at_suspects(mean);
    report_.signal = requested_signal();
    return std::move(report_);
  }
  std::string metrics() const { return metrics_; }

 private:
  void keep_gradients(train::Optimizer& optimizer) {
    evidence_.first_gradients = optimizer.gradients();
    for (at::Tensor& gradient : evidence_.first_gradients) {
      if (gradient.defined())
        gradient = gradient.detach().to(at::kFloat) / run_.scaler.state().scale;  // a copy
    }
  }

  void record(const train::StepOutcome& outcome) {
    const Clock::time_point now = Clock::now();
    const double seconds = std::chrono::duration<double>(now - last_).count();
    last_ = now;
    report_.losses.push_back(outcome.loss);
    for (size_t i = 0; i < outcome.stats.norms.size(); ++i) {
      evidence_.largest_norms[i] = std::max(evidence_.largest_norms[i], outcome.stats.norms[i]);
    }
    if (outcome.result == train::StepResult::kTaken && !first_taken_) {
      first_taken_ = true;
      evidence_.first_loss = outcome.loss;
    }
    const auto step = static_cast<int64_t>(report_.losses.size());
    metrics_ += io::Json({{"step", step},
                          {"loss", outcome.loss},
                          {"lr", outcome.lr},
                          {"grad_norm", outcome.stats.norm},
                          {"precision", train::compute_name(run_.state.compute)},
                          {"tokens_per_s", static_cast<double>(outcome.tokens) / seconds}})
                    .dump() +
                "\n";
    if (step == 1 || step % kPrintEvery == 0 || step == options_.steps)
      options_.print(curve_line(step, outcome.loss));
  }

  /// A row of the loss curve on the terminal, with time running downwards.
  std::string curve_line(int64_t step, double loss) const {
    const double share = std::isfinite(loss) ? std::clamp(loss / report_.start, 0.0, 1.0) : 0;
    const auto bar = static_cast<size_t>(std::lround(share * kBarWidth));
    const bool beyond = loss > 1.02 * report_.start;
    return format_number(static_cast<double>(step), "step %4.0f  ") +
           format_number(loss, "loss %8.4f  |") + std::string(bar, '#') + (beyond ? ">" : "");
  }

  void accuse(std::optional<ForwardFault> fault) {
    if (fault) {
      report_.suspects.push_back({.name = std::move(fault->name),
                                  .is_cause = true,
                                  .evidence = std::move(fault->evidence),
                                  .next = std::move(fault->next)});
    }
  }
  bool found() const { return std::ranges::any_of(report_.suspects, &OverfitSuspect::is_cause); }

  /// Describes a divergence of the steps after a good start; empty: none.
  std::string blew_up() const {
    if (!first_taken_ || !std::isfinite(report_.start)) return "";
    if (!report_.stopped.empty()) return report_.stopped;
    if (report_.losses.size() < 2 * kLastLosses) return "";
    std::vector<double> last(report_.losses.end() - kLastLosses, report_.losses.end());
    std::ranges::sort(last);
    const double settled = last[kLastLosses / 2];
    constexpr double kRounding = 1e-3;  // relative; start and steps are computed in different ways
    return settled > report_.start * (1 + kRounding) ? "loss " + format_number(settled, "%.4f")
                                                     : "";
  }

  void look_at_suspects(const MeanLoss& mean) {
    std::optional<ForwardFault> fault;
    if (!first_taken_ || !report_.stopped.empty()) fault = find_not_finite(run_, batch_);
    if (!first_taken_) evidence_.first_gradients.clear();
    const bool blown = !blew_up().empty();
    const OverfitSuspect frozen = suspect_frozen(run_, bench_, evidence_);
    OverfitSuspect high;
    if (blown) high = suspect_high_lr(run_, bench_, lr_probe());
    if (high.is_cause) {  // any other finding at its end is a consequence
      report_.suspects.push_back(std::move(high));
      return;
    }
    accuse(fault);
    if (fault) return;  // later checks would be meaningless
    if (frozen.is_cause) accuse(find_dead_output(run_, batch_));
    bool explained = found();
    report_.suspects.push_back(frozen);
    const OverfitSuspect reduction = suspect_reduction(run_, mean, evidence_);
    const LrProbe probe = lr_probe();
    if (!explained && !reduction.is_cause && !report_.losses.empty())
      explained = look_at_settings();
    const bool lr = !report_.near_zero() && !report_.losses.empty() && !explained;
    if (lr && !blown) {
      // Probes would follow a gradient that is not the loss's.
      report_.suspects.push_back(
          reduction.is_cause
              ? OverfitSuspect{.name = kLowLr,
                               .evidence = {"not probed: the gradient is not that of the loss, see "
                                            "below"}}
              : suspect_low_lr(run_, bench_, probe));
    }
    report_.suspects.push_back(reduction);
    if (lr && !found())
      report_.suspects.push_back(blown ? high : suspect_high_lr(run_, bench_, probe));
  }

  /// Whether one of them is the cause.
  bool look_at_settings() {
    const std::vector<OverfitSuspect> suspects =
        suspect_settings(run_, asked_, batch_, step_, report_.start);
    report_.suspects.insert(report_.suspects.end(), suspects.begin(), suspects.end());
    return std::ranges::any_of(suspects, &OverfitSuspect::is_cause);
  }

  LrProbe lr_probe() {
    LrProbe probe{.start = report_.start,
                  .lowest = report_.start,
                  // Another rate may reach it sooner while this one is still improving.
                  .near_zero_below = report_.falling ? 0 : report_.near_zero_below,
                  .steps = std::min(options_.steps, kProbeSteps),
                  .blew_up = blew_up(),
                  .take = {}};
    if (!probe.blew_up.empty()) probe.steps = static_cast<int64_t>(report_.losses.size());
    for (size_t i = 0; i < std::min(report_.losses.size(), static_cast<size_t>(probe.steps)); ++i) {
      if (report_.losses[i] < probe.lowest) probe.lowest = report_.losses[i];
    }
    probe.take = [this, steps = probe.steps] {
      const TrialSteps taken = bench_.take(steps, step_, [this] { return batch_; });
      ProbedSteps probed{.lowest = INFINITY, .finite = taken.stopped.empty()};
      for (const train::StepOutcome& outcome : taken.outcomes)
        if (std::isfinite(outcome.loss)) probed.lowest = std::min(probed.lowest, outcome.loss);
      return probed;
    };
    return probe;
  }

  using Clock = std::chrono::steady_clock;
  train::Run& run_;
  const recipe::Recipe& asked_;
  const OverfitOptions& options_;
  TrialRun bench_;
  const data::StepSamples batch_;
  train::StepOptions step_;
  OverfitReport report_;
  OverfitEvidence evidence_;
  bool first_taken_ = false;
  std::string metrics_;
  Clock::time_point last_ = Clock::now();
};

std::string from_to(const OverfitReport& report) {
  if (!std::isfinite(report.start)) return "the loss is not finite before the first step";
  return "loss " + format_number(report.start, "%.4f") + " -> " +
         format_number(report.lowest, "%.4f") + " in " + std::to_string(report.losses.size()) +
         " steps, near zero is below " + format_number(report.near_zero_below, "%.4f");
}

bool has_guilty(const OverfitReport& report) {
  return std::ranges::any_of(report.suspects, &OverfitSuspect::is_cause);
}

/// Advice for a non-finite value without a suspect.
std::string after_stop(const OverfitReport& report) {
  return report.losses.size() <= 1
             ? "lft debug nan hunts for what is not finite in the first step"
             : "lft train leaves an incident where that happens, which lft replay looks into";
}

std::vector<std::string> verdict(const OverfitReport& report) {
  if (report.healthy() && report.unfinished()) {
    return {"unfinished " + from_to(report) +
            ": the loss still falls and there is no suspect; increase --steps to see whether it "
            "reaches zero"};
  }
  if (report.healthy()) return {"healthy    " + from_to(report) + ": the batch is learnt"};
  std::vector<std::string> lines = {(report.near_zero() ? "learnt     " : "not learnt ") +
                                    from_to(report)};
  if (!report.stopped.empty())
    lines.push_back("stopped    " + report.stopped +
                    (has_guilty(report) ? "" : "; " + after_stop(report)));
  if (report.floor > 0)
    lines.push_back("floor      " + format_number(report.floor, "%.4f") +
                    ": equal prompts of the batch have different answers");
  std::vector<std::string> is_cause;
  for (const OverfitSuspect& suspect : report.suspects) {
    lines.push_back((suspect.is_cause ? "suspect    " : "cleared    ") + suspect.name);
    for (const std::string& evidence : suspect.evidence)
      lines.push_back("             " + escape_text(evidence, 1000));
    if (suspect.is_cause) is_cause.push_back(suspect.name);
  }
  lines.push_back("found      " + (is_cause.empty()
                                       ? "none of the suspects: more --steps, or a fault in the "
                                         "model or the labels (lft debug bare, lft preview)"
                                       : join(is_cause)));
  return lines;
}

void write_page(const recipe::Recipe& recipe, const std::string& metrics,
                const std::vector<std::string>& lines, at::Device device,
                const OverfitReport& report) {
  std::string events;
  for (const OverfitSuspect& suspect : report.suspects) {
    if (suspect.is_cause) {
      events += io::json_text(io::Json({{"event", "stopped"},
                                        {"step", report.losses.size()},
                                        {"suspect", suspect.name},
                                        {"evidence", join(suspect.evidence, "; ")}})) +
                "\n";
    }
  }
  const report::ReportInput page{
      .title = "Overfitting one batch",
      .metrics_path = {},
      .recipe_text = recipe::dump_recipe(recipe),
      .environment_json =
          train::environment_json(device, recipe.train.deterministic).dump(2) + "\n",
      .metrics_text = metrics + events,
      .facts = {{"samples", std::to_string(report.samples.size())},
                {"supervised tokens", std::to_string(report.supervised)},
                {"first loss", format_number(report.start, "%.4f")},
                {"lowest loss", format_number(report.lowest, "%.4f")},
                {"near zero is below", format_number(report.near_zero_below, "%.4f")},
                {"verdict",
                 report.healthy()
                     ? (report.unfinished() ? "unfinished" : "healthy")
                     : join(lines.empty() ? lines : std::vector{lines.back().substr(11)})}},
      .answers = {}};
  io::make_dirs(recipe.output_dir);
  report::write_report(report.page, page);
}

}  // namespace

bool OverfitReport::healthy() const { return (near_zero() || unfinished()) && !has_guilty(*this); }

ErrorInfo overfit_error(const OverfitReport& report) {
  ErrorInfo info{.what = report.near_zero() ? "one batch is learned, but not correctly"
                                            : "one batch is not learned",
                 .where = report.page,
                 .found = from_to(report),
                 .expected = "a loss near zero, and no suspect",
                 .next = {}};
  std::vector<std::string> names, advice;
  for (const OverfitSuspect& suspect : report.suspects) {
    if (!suspect.is_cause) continue;
    names.push_back(suspect.name);
    advice.push_back(suspect.next);
  }
  if (!names.empty()) info.found += "; suspect: " + join(names);
  if (!report.stopped.empty()) {
    info.found += "; stopped: " + report.stopped;
    if (names.empty()) advice.push_back(after_stop(report));
  }
  if (advice.empty())
    advice.push_back(
        "try more --steps; lft preview shows the labels, and lft debug bare tries the recipe part "
        "by part");
  info.next = join(advice, "; ");
  return info;
}

OverfitReport overfit(const recipe::Recipe& asked, const OverfitOptions& options) {
  const recipe::Recipe recipe = overfit_recipe(asked, options);
  train::make_deterministic(recipe.train.deterministic);
  train::Run run = train::make_run(train::open_inputs(recipe));
  run.objective = train::make_objective({});  // of pairs the chosen answers are learned
  if (options.hooks.built) options.hooks.built(run);
  Overfit exercise(run, asked, options);
  OverfitReport report = exercise.run();
  if (report.signal != 0) return report;
  report.page = recipe.output_dir + "/overfit.html";
  const std::vector<std::string> lines = verdict(report);
  write_page(recipe, exercise.metrics(), lines, run.device, report);
  options.print("curve      " + report.page);
  for (const std::string& line : lines) options.print(line);
  return report;
}

}  // namespace lft::debug
