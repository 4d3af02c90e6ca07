#include "src/train/step/step.h"

#include <ATen/Functions.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "models/layers/recompute.h"
#include "models/ops/core/precision.h"
#include "models/ops/weight/masters.h"
#include "src/data/batch.h"
#include "src/train/explain/autograd_errors.h"
#include "src/train/step/graph_passes.h"

namespace lft::train {
namespace {

/// Text alone does not reach a step that trains only the image side; that is the data's doing, not
/// a broken graph.
bool can_reach(const AdamW& optimizer, const std::vector<data::Sample>& samples) {
  const bool image = std::any_of(samples.begin(), samples.end(),
                                 [](const data::Sample& sample) { return !sample.images.empty(); });
  return image || std::any_of(optimizer.slots().begin(), optimizer.slots().end(),
                              [](const AdamSlot& slot) { return slot.param.scope == "llm"; });
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

/// The one made ahead where that is it.
llava::LlavaBatch take_batch(const StepOptions& options, const data::StepSamples& samples,
                             const std::vector<data::Sample>& micro) {
  const bool first = !samples.micro.empty() && &micro == &samples.micro.front();
  if (!first || !samples.made || !samples.made->input_ids_bt.defined())
    return make_batch(options, micro);
  return std::exchange(*samples.made, llava::LlavaBatch());
}

/// Forward and backward over all micro-batches; the sum of their losses, undefined where none
/// reached a trainable. Those without a supervised token contribute exactly nothing and are not
/// run.
at::Tensor run_micro_batches(llava::Llava& model, AdamW& optimizer, const LossScaler& scaler,
                             const StepOptions& options, const data::StepSamples& samples,
                             const StepState& state, int64_t supervised) {
  std::vector<std::vector<data::Sample>> parts;
  if (state.split > 1) parts = parts_of(samples, state.split);
  const std::vector<std::vector<data::Sample>>& micros = state.split > 1 ? parts : samples.micro;
  at::Tensor total;
  bool reached = false;
  GraphPasses* const graphs = state.recovered ? nullptr : options.graphs;
  MicroPass pass{.step = state.step + 1,
                 .compute = state.compute,
                 .recompute = state.recompute,
                 .supervised = supervised};
  for (size_t micro = 0; micro < micros.size(); ++micro) {
    if (supervised_tokens(micros[micro]) == 0) continue;
    pass.micro_batch = micro;
    const auto forward = [&] { return micro_loss(model, options, micros[micro], pass); };
    at::Tensor loss;
    try {
      const ops::DirectGradientsGuard direct;
      const bool reaches = can_reach(optimizer, micros[micro]);
      llava::LlavaBatch batch = take_batch(options, samples, micros[micro]);
      if (reaches && graphs != nullptr) {
        loss = graphs->run(std::move(batch), options, pass, scaler.seed());
      } else {
        loss = micro_loss(model, options, std::move(batch), pass);
        if (reaches) scaler.scale(loss).backward();
      }
      reached |= reaches;
    } catch (const std::exception& error) {
      rethrow_explained(error, *model, forward, loss);
    }
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

llava::LlavaBatch make_batch(const StepOptions& options, const std::vector<data::Sample>& samples) {
  if (!options.packed) return data::collate(samples, options.encode, options.device);
  const int64_t fill_to =
      options.fill_up == 0 ? 0 : data::filled_tokens(positions(samples), options.fill_up);
  return data::pack(samples, options.encode, options.device, fill_to);
}

at::Tensor micro_loss(llava::Llava& model, const StepOptions& options,
                      const std::vector<data::Sample>& samples, const MicroPass& pass) {
  return micro_loss(model, options, make_batch(options, samples), pass);
}

at::Tensor micro_loss(llava::Llava& model, const StepOptions& options, llava::LlavaBatch batch,
                      const MicroPass& pass) {
  const ops::ComputeDtypeGuard dtype(pass.compute);
  const ops::DropoutGuard dropout({.seed = options.seed,
                                   .step = static_cast<uint64_t>(pass.step),
                                   .micro_batch = pass.micro_batch});
  const layers::RecomputeGuard recompute(pass.recompute, options.offload_activations);
  return model->loss_sum(batch) / static_cast<double>(pass.supervised);
}

StepOutcome train_step(llava::Llava& model, AdamW& optimizer, LossScaler& scaler,
                       const Schedule& schedule, const StepOptions& options,
                       const data::StepSamples& samples, StepState& state) {
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
  const at::Tensor loss =
      run_micro_batches(model, optimizer, scaler, options, samples, state, outcome.supervised);
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
