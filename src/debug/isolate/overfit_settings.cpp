#include "src/debug/isolate/overfit_settings.h"

#include <algorithm>
#include <cmath>

#include "src/base/signals.h"
#include "src/base/text.h"
#include "src/debug/isolate/odd_settings.h"

namespace lft::debug {
namespace {

constexpr int64_t kSteps = 50;
constexpr size_t kSettled = 10;  // final losses, of which the median is used

using recipe::Recipe;

/// Trains new models with other settings, with the inputs borrowed from the run.
class Settings {
 public:
  Settings(train::Run& run, const data::StepSamples& batch, const train::StepOptions& step)
      : run_(run), batch_(batch), step_(step), recipe_(run.recipe) {}
  ~Settings() { run_.recipe = recipe_; }
  Settings(const Settings&) = delete;

  /// Infinite if a step was not finite.
  double settled_loss(const Recipe& recipe) {
    run_.recipe = recipe;
    train::Run trial = train::make_run(std::move(run_.inputs()));
    trial.objective = run_.objective;
    train::StepOptions step = step_;
    step.clip_grad_norm = recipe.optim.clip_grad_norm;
    step.gradients_ready = {};
    const TrialSteps steps = TrialRun(trial).take(kSteps, step, [this] { return batch_; });
    run_.inputs() = std::move(trial.inputs());
    if (!steps.stopped.empty()) return INFINITY;
    std::vector<double> last;
    for (size_t i = steps.outcomes.size() - kSettled; i < steps.outcomes.size(); ++i)
      last.push_back(steps.outcomes[i].loss);
    std::ranges::sort(last);
    return std::isfinite(last.back()) ? last[kSettled / 2] : INFINITY;
  }

 private:
  train::Run& run_;
  const data::StepSamples& batch_;
  const train::StepOptions& step_;
  const Recipe recipe_;
};

std::string fall_text(double start, double settled) {
  return "loss from " + format_number(start, "%.4f") +
         (std::isfinite(settled) ? " to " + format_number(settled, "%.4f") : " to no finite one");
}

}  // namespace

std::vector<OverfitSuspect> suspect_settings(train::Run& run, const Recipe& asked,
                                             const data::StepSamples& batch,
                                             const train::StepOptions& step, double start) {
  const std::vector<OddSetting> odd = odd_settings(asked);
  if (odd.empty()) return {};
  const bool alone = std::ranges::any_of(odd, &OddSetting::of_adapters);
  Recipe as_asked = run.recipe;
  if (std::ranges::find(odd, "lora.dropout", &OddSetting::name) != odd.end())
    as_asked.lora.dropout = asked.lora.dropout;
  if (alone) as_asked = adapters_alone(as_asked);
  Settings settings(run, batch, step);
  Recipe cured = as_asked;
  for (const OddSetting& each : odd) each.fix(cured);
  const double healthy = settings.settled_loss(cured);
  std::vector<OverfitSuspect> suspects;
  for (const OddSetting& one : odd) {
    if (requested_signal() != 0) break;
    Recipe with = as_asked;  // this one as requested, the others fixed
    for (const OddSetting& other : odd) {
      if (other.name != one.name) other.fix(with);
    }
    const double settled = settings.settled_loss(with);
    OverfitSuspect suspect{.name = one.name, .is_cause = is_cured(start, settled, healthy)};
    const std::string what = std::to_string(kSteps) + " steps" +
                             (alone && !asked.full.empty() ? " of the adapters alone" : "");
    suspect.evidence = {what + " as asked: " + fall_text(start, settled),
                        what + " with " + one.change + ": " + fall_text(start, healthy)};
    if (suspect.is_cause) suspect.next = "change " + one.change;
    suspects.push_back(std::move(suspect));
  }
  return suspects;
}

}  // namespace lft::debug
