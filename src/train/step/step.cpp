#include "src/train/step/step.h"

#include <ATen/Functions.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <utility>

#include "models/layers/recompute.h"
#include "models/ops/core/precision.h"
#include "models/ops/weight/masters.h"
#include "src/data/batch.h"
#include "src/train/explain/autograd_errors.h"

namespace lft::train {
namespace {

/// Text alone does not reach a step that trains only the image side; that is the data's doing, not
/// a broken graph.
bool can_reach(const Optimizer& optimizer, const std::vector<data::Sample>& samples) {
  return std::ranges::any_of(samples, [](const auto& each) { return !each.images.empty(); }) ||
         std::ranges::any_of(optimizer.slots(),
                             [](const Slot& slot) { return slot.param.scope == "llm"; });
}

int64_t positions(const std::vector<data::Sample>& samples) {
  int64_t count = 0;
  for (const data::Sample& sample : samples) count += static_cast<int64_t>(sample.input_ids.size());
  return count;
}

/// Micro-batches in the parts that are run one by one.
std::vector<std::vector<data::Sample>> parts_of(const data::StepSamples& samples, int64_t split) {
  std::vector<std::vector<data::Sample>> parts;
  for (const std::vector<data::Sample>& micro : samples.micro) {
    const size_t size =
        (micro.size() + static_cast<size_t>(split) - 1) / static_cast<size_t>(split);
    for (size_t begin = 0; begin < micro.size(); begin += size) {
      const auto first = micro.begin() + static_cast<std::ptrdiff_t>(begin);
      parts.emplace_back(first,
                         first + static_cast<std::ptrdiff_t>(std::min(size, micro.size() - begin)));
    }
  }
  return parts;
}

/// Forward and backward over all micro-batches; the sum of their losses, undefined where none
/// reached a trainable. Those without a supervised token contribute exactly nothing and are not
/// run.
at::Tensor run_micro_batches(const Learner& learner, const data::StepSamples& samples,
                             PassRunner* passes, MicroPass pass, int64_t split) {
  const auto& [model, optimizer, scaler, schedule] = learner;
  std::vector<std::vector<data::Sample>> parts;
  if (split > 1) parts = parts_of(samples, split);
  at::Tensor total;
  bool reached = false;
  for (size_t i = 0; i < (split > 1 ? parts : samples.micro).size(); ++i) {
    const std::vector<data::Sample>& rows = split > 1 ? parts[i] : samples.micro[i];
    if (supervised_tokens(rows) == 0) continue;
    pass.micro_batch = i;
    const bool reaches = can_reach(optimizer, rows);
    at::Tensor loss;
    try {
      const ops::DirectGradientsGuard direct;
      family::Batch batch = split > 1 ? samples.make(rows) : samples.take(i);
      if (reaches && passes != nullptr) {
        loss = passes->run(std::move(batch), pass, scaler.seed());
      } else {
        loss = micro_loss(model, std::move(batch), pass);
        if (reaches) scaler.scale(loss).backward();
      }
    } catch (const std::exception& error) {
      const auto again = [&] { return micro_loss(model, samples.make(rows), pass); };
      rethrow_explained(error, *model, again, loss);
    }
    reached |= reaches;
    const at::Tensor part = loss.detach().to(at::kDouble);
    total = total.defined() ? total + part : part;
  }
  return reached ? total : at::Tensor();
}

StepOutcome skip(StepOutcome outcome, StepState& state, const std::string& reason) {
  outcome.result = StepResult::kEmpty;
  outcome.reason = reason;
  ++state.step;
  return outcome;
}

/// What the check's finding means for the run.
void conclude(StepOutcome& outcome, const LossScaler& scaler, StepState& state) {
  if (!outcome.stats.found_inf) {
    ++state.step;
    ++state.scheduled;
    state.skips_in_row = 0;
    return;
  }
  outcome.result = StepResult::kNonFinite;
  if (!outcome.stats.loss_finite) {
    outcome.reason = "the loss is not finite";
  } else if (!scaler.state().enabled) {
    outcome.reason = "a gradient is not finite";
  } else if (scaler.state().scale < 1) {
    outcome.reason = "gradients overflow at every loss scale down to 1";
  } else if (state.skips_in_row + 1 >= kMostSkipsInRow) {
    outcome.reason =
        "gradients overflowed in " + std::to_string(kMostSkipsInRow) + " steps in a row";
  } else {
    outcome.result = StepResult::kOverflow;
    outcome.reason = "a gradient overflowed at this loss scale";
    ++state.skips_in_row;
    ++state.step;
  }
}

}  // namespace

int64_t supervised_tokens(const std::vector<data::Sample>& samples) {
  int64_t count = 0;
  for (const data::Sample& sample : samples) count += sample.supervised();
  return count;
}

std::vector<std::string> sample_ids(const data::StepSamples& samples) {
  std::vector<std::string> ids;
  for (const auto& micro : samples.micro) {
    for (const data::Sample& sample : micro) ids.push_back(sample.id);
  }
  return ids;
}

MicroPass micro_pass(const StepOptions& options, const StepState& state) {
  return {.step = state.step + 1,
          .seed = options.seed,
          .compute = state.compute,
          .recompute = state.recompute,
          .offload_activations = options.offload_activations};
}

at::Tensor micro_loss(family::Model& model, family::Batch batch, const MicroPass& pass) {
  const ops::ComputeDtypeGuard dtype(pass.compute);
  const ops::DropoutGuard dropout({.seed = pass.seed,
                                   .step = static_cast<uint64_t>(pass.step),
                                   .micro_batch = pass.micro_batch});
  const layers::RecomputeGuard recompute(pass.recompute, pass.offload_activations);
  return model->loss_sum(batch) / static_cast<double>(pass.supervised);
}

StepOutcome train_step(const Learner& learner, const StepOptions& options,
                       const data::StepSamples& samples, StepState& state) {
  const auto& [model, optimizer, scaler, schedule] = learner;
  StepOutcome outcome;
  outcome.lr_factor = schedule.factor(state.scheduled);
  outcome.lr = optimizer.groups().front().lr * outcome.lr_factor;
  outcome.loss_scale = scaler.state().scale;
  for (const auto& micro : samples.micro) {
    outcome.supervised += supervised_tokens(micro);
    outcome.tokens += positions(micro);
  }
  optimizer.zero_gradients();
  optimizer.keep_shadows(state.compute);
  if (outcome.supervised == 0) return skip(std::move(outcome), state, "no supervised token");
  MicroPass pass = micro_pass(options, state);
  pass.supervised = outcome.supervised;
  PassRunner* const passes = state.recovered ? nullptr : options.passes;
  const at::Tensor loss = run_micro_batches(learner, samples, passes, pass, state.split);
  if (!loss.defined()) return skip(std::move(outcome), state, "no image for what is trained");
  if (options.gradients_ready) options.gradients_ready(state.step + 1, optimizer);

  scaler.unscale(optimizer, loss, options.clip_grad_norm);
  scaler.step(optimizer, outcome.lr_factor);
  if (options.while_device_works) options.while_device_works();
  outcome.stats = scaler.update();
  outcome.loss = outcome.stats.loss;
  optimizer.forget_gradients();
  conclude(outcome, scaler, state);
  return outcome;
}

}  // namespace lft::train
