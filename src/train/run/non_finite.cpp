#include "src/train/run/non_finite.h"

#include <cmath>

#include "kernels/common/error.h"
#include "src/base/text.h"
#include "src/recipe/train_command.h"
#include "src/recipe/value_text.h"
#include "src/train/machine/device.h"
#include "src/train/run/incident.h"
#include "src/train/step/recovery.h"

namespace lft::train {
namespace {

std::string number_text(double value) {
  return std::isfinite(value) ? io::Json(value).dump()
         : std::isnan(value)  ? "nan"
         : value > 0          ? "inf"
                              : "-inf";
}

/// Commands that can be run unchanged. A resumed run cannot change its learning rate or data; the
/// remedy is a new run that starts from the current weights.
/// `lost`: the current weights have this loss at any learning rate.
std::string ways_on(const Run& run, const Incident& incident, bool lost) {
  const recipe::Recipe& recipe = run.recipe;
  if (lost && run.state.step == 0)
    return "lft replay " + shell_word(incident.dir) +
           " names the op and its cause; lft debug base " + shell_word(recipe.model.path) +
           " looks for weights that are not finite. No update has been made, so a lower learning "
           "rate does not help";
  auto saved = checkpoint::list_checkpoints(recipe.output_dir + "/checkpoints", /*verify=*/false);
  if (lost) std::erase_if(saved, [&](const auto& one) { return one.step == run.state.step; });
  std::vector<std::pair<std::string, std::string>> sets = {
      {"optim.lr", io::Json(recipe.optim.lr / 4).dump()}};
  std::string from;
  if (!saved.empty()) {
    const int64_t step = saved.front().step;
    from = "from the weights of step " + std::to_string(step) +
           (step == run.state.step ? ", the last one before it, which is saved," : "");
    sets.emplace_back("lora.init_from", recipe::value_text(saved.front().path));
  } else {
    from = "over";
  }
  std::string text = "lft replay " + shell_word(incident.dir) +
                     " names the op and its cause. --resume keeps the settings of this run; "
                     "another run starts " +
                     from + " with a lower learning rate:\n  " +
                     recipe::next_run_command(recipe, "-lower", sets);
  if (incident.names_a_row)
    text += "\nor without that row: --set data.train= names a copy of the data that lacks it";
  return saved.empty() ? text : text + "\n(--set optim.init_moments=true takes its moments, too)";
}

[[noreturn]] void stop(const Run& run, const NonFiniteStep& step, const Incident& incident) {
  const StepOutcome& outcome = step.outcome;
  const int64_t bad = outcome.stats.first_bad;
  const std::string why = step.before.recovered ? "; the one recovery was used up" : "";
  const std::string samples = "samples " + join_names(sample_ids(step.samples), 8);
  const std::string& culprit = incident.culprit;
  refuse(ErrorKind::kNumeric, outcome.reason + why + "; nothing was stepped",
         "step " + std::to_string(step.before.step + 1) + ", " +
             (incident.names_a_row ? culprit
                                   : samples + (culprit.empty() ? "" : "; at fault " + culprit)),
         "loss " + number_text(outcome.loss) + ", gradient norm " +
             number_text(outcome.stats.norm) + ", first bad gradient: " +
             (bad < 0 ? "none" : run.optimizer.slots()[static_cast<size_t>(bad)].param.name) +
             ", in " + compute_name(step.before.compute),
         {}, ways_on(run, incident, !std::isfinite(outcome.loss) && !incident.names_a_row));
}

}  // namespace

void handle_non_finite_step(Run& run, RunFiles& files, const StepOptions& options,
                            const NonFiniteStep& step) {
  const recipe::Recipe& recipe = run.recipe;
  const bool recovers = can_recover(step.before, recipe.precision.recovery);
  const double lr_before = run.optimizer.groups().front().lr;
  if (recovers) recover(run.state, run.optimizer, run.scaler, recipe.precision.lr_backoff);
  const double lr_after = run.optimizer.groups().front().lr;
  const Incident incident = write_incident(run, options,
                                           {.samples = step.samples,
                                            .outcome = step.outcome,
                                            .before = step.before,
                                            .action = recovers ? "fp32_recovery" : "stop",
                                            .lr_before = lr_before,
                                            .lr_after = lr_after,
                                            .last_good = step.last_good,
                                            .last_good_step = step.last_good_step});
  release_free_memory();
  const int64_t number = step.before.step + 1;
  io::Json fields = {{"reason", step.outcome.reason}, {"from", compute_name(step.before.compute)},
                     {"lr_before", lr_before},        {"lr_after", lr_after},
                     {"incident", incident.dir},      {"ids_hash", step.hashes.ids},
                     {"run_hash", step.hashes.run}};
  if (!incident.culprit.empty()) fields["culprit"] = incident.culprit;
  if (!incident.image.empty()) fields["image"] = incident.image;
  files.event(recovers ? "fp32_recovery" : "stopped", number, fields);
  if (!recovers) stop(run, step, incident);
  files.note("step " + std::to_string(number) + ": " + step.outcome.reason +
             "; nothing was stepped. From here on in fp32, learning rate times " +
             io::Json(recipe.precision.lr_backoff).dump() + "; see " + incident.dir);
  if (!incident.culprit.empty())
    files.note("  at fault: " + incident.culprit +
               (incident.image.empty() ? "" : ", image " + incident.image));
}

}  // namespace lft::train
