#include "src/train/run/non_finite.h"

#include <cmath>

#include "kernels/common/error.h"
#include "src/base/text.h"
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

[[noreturn]] void stop(const Run& run, const NonFiniteStep& step, const std::string& incident) {
  const StepOutcome& outcome = step.outcome;
  const int64_t bad = outcome.stats.first_bad;
  const std::string why = step.before.recovered ? "; the one recovery was used up" : "";
  refuse(ErrorKind::kNumeric, outcome.reason + why + "; nothing was stepped",
         "step " + std::to_string(step.before.step + 1) + ", samples " +
             join_names(sample_ids(step.samples), 8),
         "loss " + number_text(outcome.loss) + ", gradient norm " +
             number_text(outcome.stats.norm) + ", first bad gradient: " +
             (bad < 0 ? "none" : run.optimizer.slots()[static_cast<size_t>(bad)].param.name) +
             ", in " + compute_name(step.before.compute),
         {},
         incident +
             " tells what was computed; lower optim.lr, or look at these samples. The "
             "last checkpoint is intact");
}

}  // namespace

void answer_non_finite(Run& run, RunFiles& files, const StepOptions& options,
                       const NonFiniteStep& step) {
  const recipe::Recipe& recipe = run.inputs.recipe;
  const bool recovers = can_recover(step.before, recipe.precision.recovery);
  const double lr_before = run.optimizer.groups().front().lr;
  if (recovers) recover(run.state, run.optimizer, run.scaler, recipe.precision.lr_backoff);
  const double lr_after = run.optimizer.groups().front().lr;
  const IncidentFacts facts{.samples = step.samples,
                            .outcome = step.outcome,
                            .before = step.before,
                            .action = recovers ? "fp32_recovery" : "stop",
                            .lr_before = lr_before,
                            .lr_after = lr_after,
                            .last_good = step.last_good,
                            .last_good_step = step.last_good_step};
  const std::string incident =
      write_incident(recipe.output_dir + "/incidents", facts, run.model.model, run.optimizer,
                     *run.inputs.data.train, options, recipe::dump_recipe(recipe));
  release_free_memory();
  const int64_t number = step.before.step + 1;
  files.event(recovers ? "fp32_recovery" : "stopped", number,
              {{"reason", step.outcome.reason},
               {"from", compute_name(step.before.compute)},
               {"lr_before", lr_before},
               {"lr_after", lr_after},
               {"incident", incident},
               {"ids_hash", step.hashes.ids},
               {"run_hash", step.hashes.run}});
  if (!recovers) stop(run, step, incident);
  files.note("step " + std::to_string(number) + ": " + step.outcome.reason +
             "; nothing was stepped. From here on in fp32, learning rate times " +
             io::Json(recipe.precision.lr_backoff).dump() + "; see " + incident);
}

}  // namespace lft::train
