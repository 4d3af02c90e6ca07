#include "src/train/run/step_norm_records.h"

#include <string>
#include <vector>

namespace lft::train {

ActivationNorms* StepNormRecords::begin_step() {
  activations_.clear();
  return observes(run_.state.step + 1) ? &activations_ : nullptr;
}

void StepNormRecords::record(const GlobalBatch& whole, const StepOutcome& outcome) {
  const int64_t step = run_.state.step;
  const StepNorms norms{
      .step = step,
      .loss = outcome.loss,
      .norm = outcome.stats.norm,
      .modules = module_grad_norms(run_.optimizer, outcome.stats.norms, whole.has_image)};
  files_.warn(run_.norms.step(norms), step);
  gather(step);
  const std::vector<LayerValue> rms = activations_.rms();
  if (rms.empty()) return;
  files_.activations(rms, step);
  files_.warn(run_.norms.activations(rms), step);
}

bool StepNormRecords::observes(int64_t step) const {
  const int64_t every = run_.recipe.log.layer_activation_norms_every;
  return every > 0 && (step == 1 || step % every == 0);
}

/// Collects the norms of all processes' micro-batches in a step that records them.
void StepNormRecords::gather(int64_t step) {
  if (ranks_.alone() || !observes(step)) return;
  const std::vector<std::string> seen = ranks_.exchange(activations_.seen().dump());
  activations_.clear();
  for (const std::string& each : seen) activations_.add(io::Json::parse(each));
}

}  // namespace lft::train
