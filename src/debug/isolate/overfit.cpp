#include "src/debug/isolate/overfit.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "src/base/errors.h"
#include "src/base/signals.h"
#include "src/base/text.h"
#include "src/debug/isolate/forward_faults.h"
#include "src/debug/isolate/overfit_settings.h"
#include "src/debug/isolate/overfit_suspects.h"
#include "src/io/files.h"
#include "src/report/report.h"
#include "src/train/machine/determinism.h"
#include "src/train/machine/device.h"

namespace lft::debug {
namespace {

constexpr int64_t kPrintEvery = 10, kProbeSteps = 50;
constexpr double kNearNats = 0.05, kNearShare = 0.05;
constexpr int kBarWidth = 48;

recipe::Recipe overfit_recipe(recipe::Recipe recipe, const OverfitOptions& options) {
  recipe.output_dir = options.out.empty() ? recipe.output_dir + "/debug-overfit" : options.out;
  recipe.lora.dropout = 0;
  recipe.optim.neftune_alpha = 0;
  recipe.data.workers = 1;
  recipe.data.eval.clear();
  recipe.optim.schedule = "constant";
  recipe.optim.warmup_ratio = recipe.optim.min_lr_ratio = 0;
  recipe.optim.weight_decay = 0;
  recipe.train.grad_accum = 1;
  recipe.train.global_batch = 0;
  recipe.train.max_steps = options.steps;
  return recipe;
}

/// The whole exercise over one model.
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

  /// A row of the curve on the terminal: time runs downwards.
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
                                  .guilty = true,
                                  .evidence = std::move(fault->evidence),
                                  .next = std::move(fault->next)});
    }
  }
  bool found() const { return std::ranges::any_of(report_.suspects, &OverfitSuspect::guilty); }

  void look_at_suspects(const MeanLoss& mean) {
    if (!first_taken_ || !report_.stopped.empty()) {
      const std::optional<ForwardFault> fault = find_not_finite(run_, batch_);
      accuse(fault);
      if (fault) return;  // nothing that follows means anything
    }
    if (!first_taken_) evidence_.first_gradients.clear();
    const OverfitSuspect frozen = suspect_frozen(run_, bench_, evidence_);
    if (frozen.guilty) accuse(find_dead_output(run_, batch_));
    bool explained = found();
    report_.suspects.push_back(frozen);
    const OverfitSuspect reduction = suspect_reduction(run_, mean, evidence_);
    const LrProbe probe = lr_probe();
    if (!explained && !reduction.guilty && !report_.losses.empty()) explained = look_at_settings();
    const bool lr = !report_.near_zero() && !report_.losses.empty() && !explained;
    if (lr) {
      // Probes would follow a gradient that is not the loss's.
      report_.suspects.push_back(
          reduction.guilty
              ? OverfitSuspect{.name = kLowLr,
                               .evidence = {"not probed: the gradient is not that of the loss, see "
                                            "below"}}
              : suspect_low_lr(run_, bench_, probe));
    }
    report_.suspects.push_back(reduction);
    if (lr && !found()) report_.suspects.push_back(suspect_high_lr(run_, bench_, probe));
  }

  /// Whether one of them explains it.
  bool look_at_settings() {
    const std::vector<OverfitSuspect> suspects =
        suspect_settings(run_, asked_, batch_, step_, report_.start);
    report_.suspects.insert(report_.suspects.end(), suspects.begin(), suspects.end());
    return std::ranges::any_of(suspects, &OverfitSuspect::guilty);
  }

  LrProbe lr_probe() {
    LrProbe probe{.start = report_.start,
                  .lowest = report_.start,
                  .near_zero_below = report_.near_zero_below,
                  .steps = std::min(options_.steps, kProbeSteps),
                  .lowest_of_steps = {}};
    for (size_t i = 0; i < std::min(report_.losses.size(), static_cast<size_t>(probe.steps)); ++i) {
      if (report_.losses[i] < probe.lowest) probe.lowest = report_.losses[i];
    }
    probe.lowest_of_steps = [this, steps = probe.steps] {
      double lowest = INFINITY;
      for (const train::StepOutcome& outcome :
           bench_.take(steps, step_, [this] { return batch_; }).outcomes)
        if (std::isfinite(outcome.loss)) lowest = std::min(lowest, outcome.loss);
      return lowest;
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

std::vector<std::string> verdict(const OverfitReport& report) {
  if (report.healthy()) return {"healthy    " + from_to(report) + ": the batch is learnt"};
  std::vector<std::string> lines = {(report.near_zero() ? "learnt     " : "not learnt ") +
                                    from_to(report)};
  if (!report.stopped.empty())
    lines.push_back("stopped    " + report.stopped +
                    "; lft debug nan hunts for what is not finite");
  if (report.floor > 0)
    lines.push_back("floor      " + format_number(report.floor, "%.4f") +
                    ": equal prompts of the batch have different answers");
  std::vector<std::string> guilty;
  for (const OverfitSuspect& suspect : report.suspects) {
    lines.push_back((suspect.guilty ? "suspect    " : "cleared    ") + suspect.name);
    for (const std::string& evidence : suspect.evidence)
      lines.push_back("             " + escape_text(evidence, 1000));
    if (suspect.guilty) guilty.push_back(suspect.name);
  }
  lines.push_back("found      " + (guilty.empty()
                                       ? "none of the suspects: more --steps, or a fault in the "
                                         "model or the labels (lft debug bare, lft preview)"
                                       : join(guilty)));
  return lines;
}

void write_page(const recipe::Recipe& recipe, const std::string& metrics,
                const std::vector<std::string>& lines, at::Device device,
                const OverfitReport& report) {
  std::string events;
  for (const OverfitSuspect& suspect : report.suspects) {
    if (suspect.guilty) {
      events += io::Json({{"event", "stopped"},
                          {"step", report.losses.size()},
                          {"suspect", suspect.name},
                          {"evidence", join(suspect.evidence, "; ")}})
                    .dump(-1, ' ', false, io::Json::error_handler_t::replace) +
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
                     ? "healthy"
                     : join(lines.empty() ? lines : std::vector{lines.back().substr(11)})}},
      .answers = {}};
  io::make_dirs(recipe.output_dir);
  report::write_report(report.page, page);
}

}  // namespace

bool OverfitReport::healthy() const {
  return near_zero() && std::ranges::none_of(suspects, &OverfitSuspect::guilty);
}

ErrorInfo overfit_error(const OverfitReport& report) {
  ErrorInfo info{.what = report.near_zero() ? "one batch is learnt, but not as it should be"
                                            : "one batch is not learnt by heart",
                 .where = report.page,
                 .found = from_to(report),
                 .expected = "a loss near zero, and no suspect",
                 .next = {}};
  std::vector<std::string> names, advice;
  for (const OverfitSuspect& suspect : report.suspects) {
    if (!suspect.guilty) continue;
    names.push_back(suspect.name);
    advice.push_back(suspect.next);
  }
  if (!names.empty()) info.found += "; suspect: " + join(names);
  if (!report.stopped.empty()) {
    info.found += "; stopped: " + report.stopped;
    advice.push_back("lft debug nan hunts for what is not finite");
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
  if (options.hooks.built) options.hooks.built(run);
  Overfit exercise(run, asked, options);
  OverfitReport report = exercise.run();
  if (report.signal != 0) return report;
  report.page = recipe.output_dir + "/overfit.html";
  const std::vector<std::string> lines = verdict(report);
  write_page(recipe, exercise.metrics(), lines, run.inputs.device, report);
  options.print("curve      " + report.page);
  for (const std::string& line : lines) options.print(line);
  return report;
}

}  // namespace lft::debug
