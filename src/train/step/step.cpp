#include "src/train/step/step.h"

#include <ATen/Functions.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <utility>

#include "models/layers/recompute.h"
#include "models/ops/core/copy_to_device.h"
#include "models/ops/core/dispatch.h"
#include "models/ops/core/precision.h"
#include "models/ops/weight/masters.h"
#include "src/data/batch.h"
#include "src/train/explain/autograd_errors.h"
#include "src/train/machine/device.h"
#include "src/train/step/expert_figures.h"
#include "src/train/step/gradient_tree.h"
#include "src/train/step/kl_term.h"
#include "src/train/step/parts.h"

namespace lft::train {
namespace {

/// Text alone does not affect a step that trains only the image side; this is a property of the
/// data, not a broken graph.
bool can_reach(const Optimizer& optimizer, const std::vector<data::Sample>& samples) {
  return std::ranges::any_of(samples, [](const auto& each) { return !each.images.empty(); }) ||
         std::ranges::any_of(optimizer.slots(),
                             [](const Slot& slot) { return slot.param.scope == "llm"; });
}

/// Sums of the -log-probabilities of a pass's supervised tokens by the source of their sample:
/// double [sources]. Computed as a product with zeros and ones: the same bits on every run.
at::Tensor sums_by_source(const std::vector<data::Sample>& rows, const at::Tensor& logprobs_k,
                          int64_t sources) {
  at::Tensor is_of_sk = at::zeros({sources, logprobs_k.numel()}, at::kDouble);
  int64_t at = 0;
  for (const data::Sample& row : rows) {
    is_of_sk[row.source].narrow(0, at, row.supervised()).fill_(-1);
    at += row.supervised();
  }
  return at::mv(ops::copy_to_device(is_of_sk, logprobs_k.device()), logprobs_k.to(at::kDouble));
}

/// A copy in host memory, complete once the host has synchronised with the device. Does not block
/// the host.
at::Tensor sent_to_host(const at::Tensor& on_device) {
  if (!on_device.defined() || on_device.is_cpu()) return on_device;
  const bool pinned = ops::runs_kernels(on_device.device());
  at::Tensor host =
      at::empty(on_device.sizes(), on_device.options().device(at::kCPU).pinned_memory(pinned));
  return host.copy_(on_device, /*non_blocking=*/pinned);
}

/// This process's micro-batches, forward and backward.
class MicroBatches {
 public:
  MicroBatches(const TrainState& train_state, const StepOptions& options,
               const objective::ForwardContext& context, bool recovered, double balance)
      : train_state_(train_state),
        passes_(recovered || !options.objective->sums_tokens() ? nullptr : options.passes),
        ranks_(*options.ranks),
        sources_(options.sources),
        balance_(balance),
        context_(context) {}

  /// Micro-batches without a supervised token contribute exactly zero and are not run.
  Passes run(const data::StepSamples& samples, int64_t split) {
    const int64_t cut = samples.cut > 0 ? samples.cut : std::ssize(samples.micro);
    GradientTree tree(train_state_.optimizer.flat_gradients(),
                      share_of(cut, ranks_.rank(), ranks_.size()));
    for (size_t i = 0; i < samples.micro.size(); ++i) {
      const std::vector<data::Sample>& micro = samples.micro[i];
      tree.before(samples.numbers.empty() ? static_cast<int64_t>(i) : samples.numbers[i]);
      if (split == 1) {
        run_rows(
            micro, [&] { return samples.take(i); }, samples);
        continue;
      }
      for (const std::vector<data::Sample>& part :
           parts_of(micro, split, context_.objective->rows_together()))
        run_rows(
            part, [&] { return samples.make(part); }, samples);
    }
    tree.finish();
    return std::move(result_);
  }

 private:
  template <class Make>
  void run_rows(const std::vector<data::Sample>& rows, const Make& make,
                const data::StepSamples& samples) {
    objective::ForwardContext context = context_;
    ++context_.dropout->micro_batch;
    at::Tensor logprobs, figures;
    if (sources_ > 1) context.logprobs = &logprobs;
    if (!context.objective->figure_names().empty()) context.figures = &figures;
    if (supervised_tokens(rows) == 0) return;
    const auto& [model, optimizer, scaler, schedule] = train_state_;
    if (!model->config.text.sparse.empty())
      context.routing = c10::make_intrusive<layers::Routing>(balance_);
    const bool reaches = can_reach(optimizer, rows);
    at::Tensor loss;
    try {
      const ops::DirectGradientsGuard direct;
      if (reaches && passes_ != nullptr) {
        loss = passes_->run(make(), context, scaler.seed());
      } else {
        loss = objective::forward_loss(context, model, make());  // frees the batch's pixels
        if (reaches) scaler.scale(loss).backward();
      }
    } catch (const std::exception& error) {
      context.logprobs = nullptr;
      context.figures = nullptr;
      context.routing.reset();
      const auto again = [&] {
        return objective::forward_loss(context, model, samples.make(rows));
      };
      rethrow_explained(error, *model, again, loss);
    }
    result_.reached |= reaches;
    result_.losses.push_back(loss.detach().to(at::kDouble));
    std::vector<at::Tensor> sums;
    if (logprobs.defined()) sums.push_back(sums_by_source(rows, logprobs, sources_));
    if (figures.defined()) sums.push_back(figures.sum(0).slice(0, 1));  // without the loss
    if (context.routing) {
      add_counts(result_.routed, context.routing->tokens());
      if (balance_ != 0) sums.push_back(context.routing->loss().reshape({1}));
    }
    if (!sums.empty()) result_.sums.push_back(at::cat(sums));
  }

  const TrainState& train_state_;
  PassRunner* const passes_;
  const dist::Ranks& ranks_;
  const int64_t sources_;
  const double balance_;               // the loss scale and the share of a pass included
  objective::ForwardContext context_;  // of the next pass
  Passes result_;
};

/// The loss over all processes.
struct WholeLoss {
  at::Tensor loss;  // undefined if no trainable was reached
  at::Tensor sums;  // total_sums()
  std::vector<int64_t> routed;
};

/// Runs all passes and sums the gradients.
WholeLoss run_all(const TrainState& train_state, const StepOptions& options, MicroBatches& own,
                  const data::StepSamples& samples, const StepState& state) {
  Passes passes;
  if (options.ranks->alone()) {  // the host need not wait for the loss
    passes = own.run(samples, state.split);
    const at::Tensor loss = total_loss(passes);
    if (loss.defined() && options.gradients_ready)
      options.gradients_ready(state.step + 1, train_state.optimizer);
    return {loss, total_sums(passes), std::move(passes.routed)};
  }
  std::exception_ptr failed;
  options.ranks->at("step " + std::to_string(state.step + 1) + ", its passes");
  try {
    passes = own.run(samples, state.split);
    if (passes.reached && options.gradients_ready)
      options.gradients_ready(state.step + 1, train_state.optimizer);
  } catch (const std::exception& error) {
    if (!is_out_of_memory(error)) throw;
    failed = std::current_exception();
  }
  options.ranks->at("step " + std::to_string(state.step + 1) + ", its update");
  const at::Tensor loss = share_passes(*options.ranks, passes, failed, train_state.optimizer);
  train_state.scaler.seed();  // also if this process had nothing to run
  return {loss, total_sums(passes), std::move(passes.routed)};
}

std::vector<SourceLoss> source_losses(const at::Tensor& sums, const GlobalBatch& whole) {
  std::vector<SourceLoss> losses;
  if (!sums.defined()) return losses;
  for (size_t i = 0; i < whole.supervised_of.size(); ++i) {
    const int64_t supervised = whole.supervised_of[i];
    if (supervised == 0) continue;
    const auto source = static_cast<int64_t>(i);
    losses.push_back({.source = source,
                      .supervised = supervised,
                      .loss = sums[source].item<double>() / static_cast<double>(supervised)});
  }
  return losses;
}

/// The objective's figures, whose sums follow those of the sources.
objective::Figures figures_of(const objective::Objective& objective, const at::Tensor& sums,
                              int64_t sources, int64_t normaliser) {
  if (!sums.defined() || sums.numel() == sources) return {};
  const at::Tensor all = sums.contiguous();
  return objective.means(
      {all.const_data_ptr<double>() + sources, static_cast<size_t>(all.numel() - sources)},
      normaliser);
}

StepOutcome skip(StepOutcome outcome, StepState& state, const std::string& reason) {
  outcome.result = StepResult::kEmpty;
  outcome.reason = reason;
  ++state.step;
  return outcome;
}

/// Converts the result of the gradient check to the outcome of the step.
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

std::vector<std::string> sample_ids(const data::StepSamples& samples) {
  std::vector<std::string> ids;
  for (const auto& micro : samples.micro) {
    for (const data::Sample& sample : micro) ids.push_back(sample.id);
  }
  return ids;
}

objective::ForwardContext step_context(const StepOptions& options, const StepState& state) {
  return {.compute = state.compute,
          .dropout = ops::DropoutPosition{.seed = options.seed,
                                          .step = static_cast<uint64_t>(state.step + 1)},
          .recompute = state.recompute,
          .offload_activations = options.offload_activations,
          .objective = options.objective};
}

StepOutcome train_step(const TrainState& train_state, const StepOptions& options,
                       const data::StepSamples& samples, StepState& state) {
  return train_step(train_state, options, samples,
                    global_batch_of(samples, options.objective->uses_kl()), state);
}

StepOutcome train_step(const TrainState& train_state, const StepOptions& options,
                       const data::StepSamples& samples, const GlobalBatch& whole,
                       StepState& state) {
  const auto& [model, optimizer, scaler, schedule] = train_state;
  StepOutcome outcome;
  outcome.lr_factor = schedule.factor(state.scheduled);
  outcome.lr = optimizer.groups().front().lr * outcome.lr_factor;
  outcome.loss_scale = scaler.state().scale;
  outcome.supervised = whole.supervised;
  outcome.tokens = whole.tokens;
  optimizer.zero_gradients();
  optimizer.refresh_copies(state.compute);
  if (outcome.supervised == 0) return skip(std::move(outcome), state, "no supervised token");
  objective::ForwardContext context = step_context(options, state);
  context.normaliser = options.objective->normaliser(whole.counts());
  const auto parts = [&](int64_t micro_batches) {
    return count_parts(whole, micro_batches, state.split, options.objective->rows_together());
  };
  context.dropout->micro_batch = static_cast<uint64_t>(parts(whole.first));
  if (options.objective->uses_kl()) {
    if (whole.ids.size() < 2)
      return skip(std::move(outcome), state, "a single row, which has no other row's answer");
    context.kl = outcome.kl = kl_term(train_state, options, context, samples, whole, state);
  }
  const auto passes = static_cast<double>(parts(std::ssize(whole.rows)));
  MicroBatches own(train_state, options, context, state.recovered,
                   options.balance * scaler.state().scale / passes);
  const auto [loss, device_sums, routed] = run_all(train_state, options, own, samples, state);
  if (!loss.defined()) return skip(std::move(outcome), state, "no image for what is trained");

  // Machines of different kinds may differ in the last bit of a norm: rank 0's result is used by
  // all.
  const auto agree = [&](const ops::GradVerdict& verdict) {
    options.ranks->broadcast(verdict.control);
    options.ranks->broadcast(verdict.squares);
  };
  scaler.unscale(optimizer, loss, options.clip_grad_norm, agree);
  scaler.step(optimizer, outcome.lr_factor);
  at::Tensor sums = sent_to_host(device_sums);
  if (options.while_device_works) options.while_device_works();
  outcome.stats = scaler.update();
  outcome.loss = outcome.stats.loss;
  const double balance = options.balance == 0 ? 0 : sums[-1].item<double>() / passes;
  if (options.balance != 0) sums = sums.slice(0, 0, -1);
  const int64_t sources = options.sources > 1 ? options.sources : 0;
  if (sources > 0) outcome.sources = source_losses(sums, whole);
  outcome.figures = figures_of(*options.objective, sums, sources, context.normaliser);
  std::ranges::copy(expert_figures(routed, model->config.text.experts.count),
                    std::back_inserter(outcome.figures));
  if (options.balance != 0) outcome.figures.emplace_back("balance_loss", balance);
  optimizer.forget_gradients();
  conclude(outcome, scaler, state);
  return outcome;
}

}  // namespace lft::train
