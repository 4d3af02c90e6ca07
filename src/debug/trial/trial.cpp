#include "src/debug/trial/trial.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "kernels/common/error.h"
#include "models/objective/forward_loss.h"
#include "src/base/signals.h"
#include "src/data/batch.h"
#include "src/train/run/rehearsal.h"

namespace lft::debug {

int64_t TrialSteps::taken() const {
  return std::ranges::count(outcomes, train::StepResult::kTaken, &train::StepOutcome::result);
}

TrialRun::TrialRun(train::Run& run) : run_(run), scaler_(run.scaler), state_(run.state) {
  for (const train::Slot& slot : run.optimizer.slots())
    start_.push_back(slot.param.tensor.detach().clone());
  for (const train::ParamGroup& group : run.optimizer.groups()) lr_.push_back(group.lr);
}

void TrialRun::reset() {
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < start_.size(); ++i) {
    train::Slot& slot = run_.optimizer.slots()[i];
    at::Tensor(slot.param.tensor).copy_(start_[i]);
    train::forget_moments(slot);
  }
  for (size_t i = 0; i < lr_.size(); ++i) run_.optimizer.groups()[i].lr = lr_[i];
  run_.optimizer.drop_gradients();
  run_.scaler = scaler_;
  run_.state = state_;
}

TrialSteps TrialRun::take(int64_t count, const train::StepOptions& options,
                          const std::function<data::StepSamples()>& batch,
                          const std::function<void(const train::StepOutcome&)>& each) {
  TrialSteps steps;
  for (int64_t i = 0; i < count && steps.stopped.empty(); ++i) {
    if (requested_signal() != 0) {
      steps.stopped = "a signal";
      break;
    }
    const std::string step = "step " + std::to_string(run_.state.step + 1) + ": ";
    try {
      steps.outcomes.push_back(
          train::train_step({run_.model.model, run_.optimizer, run_.scaler, run_.schedule}, options,
                            batch(), run_.state));
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kInternal) throw;
      steps.stopped = step + error.what();
      break;
    }
    const train::StepOutcome& outcome = steps.outcomes.back();
    if (each) each(outcome);
    if (outcome.result == train::StepResult::kNonFinite) steps.stopped = step + outcome.reason;
  }
  return steps;
}

double TrialRun::moved(size_t slot) const {
  return (run_.optimizer.slots()[slot].param.tensor.detach() - start_[slot]).norm().item<double>();
}

train::StepOptions step_options(const train::Run& run, const TrialHooks& hooks) {
  train::StepOptions options = train::run_step_options(run);
  options.gradients_ready = hooks.gradients_ready;
  return options;
}

double trial_loss(train::Run& run, const std::vector<data::Sample>& samples) {
  const at::NoGradGuard no_grad;
  const data::LoaderOptions options = train::loader_options(run, run.data.lengths);
  std::vector<std::vector<data::Sample>> parts;
  data::MicroBatchCutter cutter(options);
  for (size_t i = 0; i < samples.size(); ++i) {
    const auto tokens = static_cast<int64_t>(samples[i].input_ids.size());
    if (cutter.starts_micro_batch(static_cast<int64_t>(i), tokens)) parts.emplace_back();
    parts.back().push_back(samples[i]);
  }
  data::BatchLayout layout = train::batch_layout(run);
  layout.fill_up = 0;
  double sum = 0;
  for (const std::vector<data::Sample>& part : parts) {
    if (train::supervised_tokens(part) == 0) continue;
    const family::Batch batch = data::make_batch(layout, part);
    sum += objective::forward_loss({.compute = run.state.compute}, run.model.model, batch)
               .item<double>();
  }
  return sum / static_cast<double>(train::supervised_tokens(samples));
}

}  // namespace lft::debug
