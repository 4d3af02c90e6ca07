#include "src/train/run/run_saves.h"

#include "src/base/errors.h"
#include "src/base/log.h"
#include "src/base/phase.h"

namespace lft::train {
namespace {

Phase saving(int64_t step) {
  return Phase("saving the checkpoint of step " + std::to_string(step), 0,
               "after the checkpoint is saved");
}

}  // namespace

void RunSaves::commit() {
  committed_ = {.metrics_bytes = files_.size(),
                .skips = run_.skipped_samples.size(),
                .hash = run_.hash,
                .scale = run_.scaler.state()};
}

void RunSaves::save() {
  const int64_t step = run_.state.step;
  saved_step_ = step;
  if (!ranks_.first()) return;
  ranks_.at("step " + std::to_string(step) + ", saving it");
  const Phase phase = saving(step);
  files_.event("checkpoint", step,
               {{"path", run_.recipe.output_dir + "/checkpoints/step-" + std::to_string(step)}});
  saved_.save(snapshot(run_, files_.sync()));
}

void RunSaves::finish() {
  if (saved_step_ != run_.state.step) save();
  if (!ranks_.first()) return;
  const Phase phase = saving(run_.state.step);
  saved_.finish(run_.best.step);
}

void RunSaves::save_evaluated() {
  if (!ranks_.first()) return;
  const Phase phase = saving(run_.state.step);
  saved_.save(snapshot(run_, files_.sync()));
  saved_.finish(run_.best.step);
}

void RunSaves::save_committed() {
  if (!ranks_.first()) return;
  if (saved_step_ != run_.state.step) {
    saved_step_ = run_.state.step;
    files_.sync();
    run_.skipped_samples.resize(committed_.skips);
    run_.hash = committed_.hash;
    run_.scaler = LossScaler(committed_.scale);
    saved_.save(snapshot(run_, committed_.metrics_bytes));
  }
  saved_.finish(run_.best.step);
}

void RunSaves::save_before_non_finite() {
  if (run_.state.step == 0) return;
  try {
    save_committed();
  } catch (const Error& error) {
    warning("step " + std::to_string(run_.state.step) + " could not be saved: " + error.what());
  }
}

}  // namespace lft::train
