#include "src/train/step.h"

#include <ATen/Functions.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "kernels/common/error.h"
#include "models/ops/precision.h"
#include "src/base/text.h"
#include "src/io/json.h"
#include "src/train/grad_check.h"

namespace lft {
namespace {

int64_t supervised_tokens(const std::vector<Sample>& samples) {
  int64_t count = 0;
  for (const Sample& sample : samples) count += sample.supervised();
  return count;
}

/// Forward and backward over all micro-batches. The global count is known before the first of them, and each micro-loss is divided by it
/// before its backward pass. Micro-batches without a supervised token contribute exactly nothing and are not run.
double run_micro_batches(Llava& model, const StepOptions& options, const StepSamples& samples, const StepState& state, int64_t supervised) {
  at::Tensor total;
  for (size_t micro = 0; micro < samples.micro.size(); ++micro) {
    if (supervised_tokens(samples.micro[micro]) == 0) continue;
    const LlavaBatch batch = collate(samples.micro[micro], options.encode, options.device);
    ComputeDtypeGuard compute(state.compute);
    DropoutGuard dropout({.seed = options.seed, .step = static_cast<uint64_t>(state.step + 1), .micro_batch = micro});
    const at::Tensor loss = model->loss_sum(batch) / static_cast<double>(supervised);
    if (loss.requires_grad()) loss.backward();
    const at::Tensor part = loss.detach().to(at::kDouble);
    total = total.defined() ? total + part : part;
  }
  return total.item<double>();
}

std::string number_text(double value) {
  return std::isfinite(value) ? Json(value).dump() : std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
}

[[noreturn]] void throw_non_finite(const StepOutcome& outcome, const GradCheck& check, AdamW& optimizer, const StepSamples& samples,
                                   int64_t step) {
  std::vector<std::string> ids;
  for (const auto& micro : samples.micro) {
    for (const Sample& sample : micro) ids.push_back(sample.id);
  }
  const std::string bad = check.first_bad < 0 ? "none" : optimizer.slots()[check.first_bad].param.name;
  optimizer.drop_gradients();
  throw Error(ErrorKind::kNumeric,
              {.what = "the loss or a gradient is not finite; nothing was stepped",
               .where = "step " + std::to_string(step) + ", samples " + join(ids, ", ", 8),
               .found = "loss " + number_text(outcome.loss) + ", gradient norm " + number_text(check.norm) + ", first bad gradient: " + bad,
               .expected = {},
               .next = "lower optim.lr, or set precision.compute: fp32"});
}

}  // namespace

StepOutcome train_step(Llava& model, AdamW& optimizer, const Schedule& schedule, const StepOptions& options, const StepSamples& samples,
                       StepState& state) {
  StepOutcome outcome;
  const double factor = schedule.factor(state.taken);
  outcome.lr = optimizer.groups().front().lr * factor;
  for (const auto& micro : samples.micro) {
    outcome.supervised += supervised_tokens(micro);
    for (const Sample& sample : micro) outcome.tokens += static_cast<int64_t>(sample.input_ids.size());
  }
  optimizer.drop_gradients();
  if (outcome.supervised == 0) {
    outcome.skipped = true;
    ++state.step;
    return outcome;
  }
  outcome.loss = run_micro_batches(model, options, samples, state, outcome.supervised);

  std::vector<at::Tensor> gradients;
  for (AdamSlot& slot : optimizer.slots()) gradients.push_back(slot.param.tensor.grad());
  GradCheck check = check_gradients(gradients);
  if (!std::isfinite(outcome.loss) || check.first_bad >= 0) throw_non_finite(outcome, check, optimizer, samples, state.step + 1);
  outcome.grad_norm = check.norm;
  outcome.grad_norms = std::move(check.norms);

  if (const double clip = clip_factor(outcome.grad_norm, options.clip_grad_norm); clip < 1) {
    at::NoGradGuard no_grad;
    std::erase_if(gradients, [](const at::Tensor& gradient) { return !gradient.defined(); });
    at::_foreach_mul_(gradients, clip);
  }
  optimizer.step(factor);
  optimizer.drop_gradients();
  ++state.step;
  ++state.taken;
  return outcome;
}

}  // namespace lft
