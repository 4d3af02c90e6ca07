#include "src/debug/isolate/overfit_suspects.h"

#include <ATen/Functions.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "models/lora/trained_modules.h"
#include "models/ops/core/precision.h"
#include "src/base/numeric.h"
#include "src/base/text.h"
#include "src/data/batch.h"
#include "src/debug/isolate/odd_settings.h"
#include "src/train/optim/adamw.h"

namespace lft::debug {
namespace {

constexpr size_t kShownModules = 8;
constexpr double kSmallestHalf =
    0x1p-14;  // a smaller B may vanish in the cast to FP16, and A's gradient with it
/// A probe is better if the loss falls by this factor more, and by kSomeFall.
constexpr double kFurther = 1.5;

bool is_a(const std::string& tensor) { return tensor.ends_with(lora::kLoraA); }

/// "lora_A" or "bias": the tensor within its module.
std::string part_of(const std::string& tensor, const lora::TrainedModule& module) {
  const std::string part = tensor.substr(module.name.size() + 1);
  return module.adapter() ? part.substr(0, part.find('.')) : part;
}

std::vector<double> slot_rates(train::Optimizer& optimizer) {
  std::vector<double> rates(optimizer.slots().size(), 0);
  for (const train::ParamGroup& group : optimizer.groups()) {
    for (const size_t member : group.members) rates[member] = group.lr;
  }
  return rates;
}

/// Whether a slot's update is lost in float32 rounding of its weight, for every element.
bool lost_in_rounding(const train::UpdateRule& rule, const train::Slot& slot, double lr) {
  if (slot.steps == 0) return false;
  const at::Tensor update = rule.direction(slot).abs() * lr;
  const at::Tensor half_ulp = slot.param.tensor.detach().abs() * 0x1p-25;
  return !at::logical_and(update > half_ulp, update > 0).any().item<bool>();
}

/// Why a slot did not change; empty if it did, or if the cause is elsewhere.
std::string stuck_reason(const train::Run& run, const TrialRun& bench,
                         const OverfitEvidence& evidence, const lora::TrainedModule& module,
                         size_t at, double lr) {
  const train::Slot& slot = run.optimizer.slots()[at];
  if (bench.moved(at) > 0) return "";
  if (!slot.param.tensor.requires_grad()) return "requires no gradient";
  if (slot.steps == 0) return "had no gradient in any step";
  if (evidence.largest_norms[at] > 0) {
    if (lost_in_rounding(run.optimizer.rule(), slot, lr)) return "";
    return "had a gradient of norm " + format_number(evidence.largest_norms[at]) +
           " and learning rate " + format_number(lr) + ", and did not move";
  }
  for (const size_t other : module.members) {
    if (!is_a(slot.param.name) || other == at) continue;  // A's gradient is zero while B is
    const double b = run.optimizer.slots()[other].param.tensor.detach().abs().max().item<double>();
    if (b == 0 || (run.state.compute == at::kHalf && b < kSmallestHalf)) return "";
  }
  return "had a gradient of exactly zero in every step";
}

/// L2 norms over all slots of two sets of gradients, and their product.
struct Overlap {
  double gg = 0, rr = 0, gr = 0;
};
Overlap overlap_of(const std::vector<at::Tensor>& g, const std::vector<at::Tensor>& r) {
  Overlap sum;
  for (size_t i = 0; i < g.size(); ++i) {
    if (g[i].defined()) sum.gg += g[i].to(at::kDouble).square().sum().item<double>();
    if (r[i].defined()) sum.rr += r[i].to(at::kDouble).square().sum().item<double>();
    if (g[i].defined() && r[i].defined())
      sum.gr += (g[i].to(at::kDouble) * r[i].to(at::kDouble)).sum().item<double>();
  }
  return sum;
}

/// The share of Adam's step that remains despite eps: 1 if gradients are far above it. Not for A,
/// whose gradient is as small as B still is. Nothing if no slot has Adam's second moment.
std::optional<double> above_eps(const train::Run& run) {
  const recipe::Recipe::Optim& optim = run.recipe.optim;
  std::vector<double> shares;
  bool adam = false;
  for (const train::Slot& slot : run.optimizer.slots()) {
    const at::Tensor squares = train::adam_moments(slot).exp_avg_sq;
    adam |= squares.defined();
    if (slot.steps == 0 || is_a(slot.param.name) || !squares.defined()) continue;
    const at::Tensor root =
        (squares / (1 - std::pow(optim.betas[1], static_cast<double>(slot.steps)))).sqrt();
    const at::Tensor seen = root.masked_select(root > 0);
    if (seen.numel() > 0) shares.push_back((seen / (seen + optim.eps)).mean().item<double>());
  }
  return adam ? std::optional(median(shares)) : std::nullopt;
}

/// The change relative to the value, over tensors that were not initially zero.
double relative_movement(const train::Run& run, const TrialRun& bench) {
  std::vector<double> shares;
  for (size_t i = 0; i < bench.start().size(); ++i) {
    const double size = bench.start()[i].norm().item<double>();
    if (size > 0) shares.push_back(bench.moved(i) / size);
  }
  return median(shares);
}

bool further(const LrProbe& probe, double lowest) {
  const double fall = probe.start - lowest;
  return lowest < probe.near_zero_below ||
         (fall > kFurther * std::max(0.0, probe.start - probe.lowest) &&
          fall > kSomeFall * probe.start);
}

void tell_probe(OverfitSuspect& suspect, const LrProbe& probe, double rate, double lowest) {
  suspect.evidence.push_back(std::to_string(probe.steps) + " steps at " + format_number(rate) +
                             ": loss " + format_number(probe.start, "from %.4f") +
                             format_number(lowest, " to %.4f"));
}

/// Runs steps from the initial state with every rate times `factor`.
ProbedSteps probe_at(train::Run& run, TrialRun& bench, const LrProbe& probe, double factor) {
  bench.reset();
  for (train::ParamGroup& group : run.optimizer.groups()) group.lr *= factor;
  const ProbedSteps probed = probe.take();
  bench.reset();
  return probed;
}

}  // namespace

MeanLoss independent_mean_loss(train::Run& run, const data::StepSamples& batch) {
  const at::AutoGradMode with_graph(true);
  const ops::ComputeDtypeGuard dtype(at::kFloat);
  std::vector<at::Tensor> asked;
  std::vector<size_t> slots;
  MeanLoss mean;
  mean.gradients.resize(run.optimizer.slots().size());
  for (size_t i = 0; i < run.optimizer.slots().size(); ++i) {
    if (!run.optimizer.slots()[i].param.tensor.requires_grad()) continue;
    asked.push_back(run.optimizer.slots()[i].param.tensor);
    slots.push_back(i);
  }
  int64_t count = 0;
  for (const std::vector<data::Sample>& micro : batch.micro) {
    for (const data::Sample& sample : micro) {
      const family::Batch one = data::collate({sample}, run.data.encode, run.device);
      const at::Tensor labels = one.labels_bt[0].slice(0, 1),
                       places = (labels != -100).nonzero().squeeze(1);
      const at::Tensor logits =
          run.model.model->all_logits(one)[0].index_select(0, places).to(at::kDouble);
      const at::Tensor sum =
          -at::log_softmax(logits, 1).gather(1, labels.index_select(0, places).unsqueeze(1)).sum();
      count += places.numel();
      mean.loss += sum.item<double>();
      if (!sum.requires_grad() || asked.empty()) continue;
      const auto gradients = torch::autograd::grad({sum}, asked, {}, std::nullopt,
                                                   /*create_graph=*/false, /*allow_unused=*/true);
      for (size_t i = 0; i < slots.size(); ++i) {
        at::Tensor& total = mean.gradients[slots[i]];
        if (gradients[i].defined()) total = total.defined() ? total + gradients[i] : gradients[i];
      }
    }
  }
  mean.loss /= static_cast<double>(count);
  for (at::Tensor& gradient : mean.gradients) {
    if (gradient.defined()) gradient = gradient / static_cast<double>(count);
  }
  return mean;
}

OverfitSuspect suspect_frozen(train::Run& run, const TrialRun& bench,
                              const OverfitEvidence& evidence) {
  const std::vector<lora::TrainedModule> modules = lora::trained_modules(run.model.trainables);
  const std::vector<double> rates = slot_rates(run.optimizer);
  OverfitSuspect suspect{.name = "frozen layer",
                         .next =
                             "find what keeps the gradient from these modules, or take them out of "
                             "lora.targets and full"};
  std::vector<std::string> stuck;
  for (const lora::TrainedModule& module : modules) {
    std::vector<std::string> reasons;
    for (const size_t at : module.members) {
      const std::string reason = stuck_reason(run, bench, evidence, module, at, rates[at]);
      if (!reason.empty())
        reasons.push_back(part_of(run.optimizer.slots()[at].param.name, module) + " " + reason);
    }
    // A bias may have no gradient although its weight learns; half an adapter does not count.
    if (!reasons.empty() && (module.adapter() || reasons.size() == module.members.size()))
      stuck.push_back(module.name + ": " + join(reasons, "; "));
  }
  suspect.is_cause = !stuck.empty();
  suspect.evidence.push_back(std::to_string(stuck.size()) + " of " +
                             std::to_string(modules.size()) + " trained modules are frozen");
  for (size_t i = 0; i < std::min(stuck.size(), kShownModules); ++i)
    suspect.evidence.push_back(stuck[i]);
  if (stuck.size() > kShownModules)
    suspect.evidence.push_back("and " + std::to_string(stuck.size() - kShownModules) + " more");
  return suspect;
}

OverfitSuspect suspect_reduction(const train::Run& run, const MeanLoss& mean,
                                 const OverfitEvidence& evidence) {
  OverfitSuspect suspect{.name = "loss reduction",
                         .next =
                             "try --set precision.compute=fp32; what stays then is a fault of lft "
                             "or of a hook: report it with overfit.html"};
  if (evidence.first_gradients.empty()) {
    suspect.evidence.push_back("no step was taken, so there is nothing to compare");
    return suspect;
  }
  const Overlap overlap = overlap_of(evidence.first_gradients, mean.gradients);
  if (overlap.gg == 0 && overlap.rr == 0) {
    suspect.evidence.push_back("every gradient is zero, so that there is nothing to compare");
    return suspect;
  }
  const bool exact = run.state.compute == at::kFloat;
  const double tolerance = exact ? 0.01 : 0.1,
               turned = exact ? 0.02 : 0.3;  // rounding of FP32, TF32; of BF16 and FP16
  const double ratio = overlap.rr > 0 ? overlap.gr / overlap.rr : INFINITY,
               loss_ratio = evidence.first_loss / mean.loss;
  const double along = overlap.rr > 0 ? overlap.gr * overlap.gr / overlap.rr : 0;
  const double off = overlap.gg > 0 ? std::sqrt(std::max(0.0, overlap.gg - along) / overlap.gg) : 0;
  const auto wrong = [&](double value) { return !(std::abs(value - 1) <= tolerance); };
  suspect.is_cause = wrong(ratio) || wrong(loss_ratio) || !(off <= turned);
  suspect.evidence.push_back("loss of step 1: " + format_number(evidence.first_loss, "%.6g") +
                             "; the mean over its supervised tokens, computed independently: " +
                             format_number(mean.loss, "%.6g") + " (" +
                             format_number(loss_ratio, "%.4g") + " times)");
  suspect.evidence.push_back("gradient of step 1: norm " +
                             format_number(std::sqrt(overlap.gg), "%.4g") + ", " +
                             format_number(ratio, "%.4g") + " times the mean's (norm " +
                             format_number(std::sqrt(overlap.rr), "%.4g") + "), " +
                             format_number(100 * off) + "% of it in other directions");
  return suspect;
}

OverfitSuspect suspect_low_lr(train::Run& run, TrialRun& bench, const LrProbe& probe) {
  OverfitSuspect suspect{.name = kLowLr};
  const std::optional<double> adam = above_eps(run);
  const double share = adam.value_or(1), moved = relative_movement(run, bench);
  suspect.evidence.push_back("the weights moved by " + format_number(100 * moved) +
                             "% of their size (median of the tensors that began off zero)" +
                             (adam ? "; Adam's steps are " + format_number(100 * share) +
                                         "% of the learning rate because of its eps"
                                   : ""));
  bench.reset();
  double lr = run.optimizer.groups().front().lr, factor = 1;
  if (lr == 0) {
    suspect.evidence.push_back("the learning rate is 0");
    suspect.next = "set optim.lr above 0";
    suspect.is_cause = true;
    return suspect;
  }
  tell_probe(suspect, probe, lr, probe.lowest);
  const double moves = probe.start - probe.lowest;
  double best = probe.lowest, best_lr = lr;
  while (lr * factor * 10 <= kMostLr) {
    factor *= 10;
    // At a small rate the decrease of the loss is proportional to it.
    if (moves > 0 && moves * factor < kSomeFall * probe.start) continue;
    const double lowest = probe_at(run, bench, probe, factor).lowest;
    tell_probe(suspect, probe, lr * factor, lowest);
    const bool fell = probe.start - best > kSomeFall * probe.start;
    if (!(lowest < best) && fell) break;
    if (lowest < best) {
      best = lowest;
      best_lr = lr * factor;
    }
    if (best < probe.near_zero_below) break;
  }
  suspect.is_cause = best_lr > lr && share >= 0.1 && further(probe, best);
  if (suspect.is_cause)
    suspect.evidence.push_back(suspect.next = "try optim.lr=" + format_number(best_lr));
  if (best_lr > lr && share < 0.1)
    suspect.evidence.push_back(
        "not the cause: gradients are below Adam's eps, which a learning rate cannot fix");
  return suspect;
}

OverfitSuspect suspect_high_lr(train::Run& run, TrialRun& bench, const LrProbe& probe) {
  OverfitSuspect suspect{.name = "learning rate too high"};
  bench.reset();
  const double lr = run.optimizer.groups().front().lr;
  tell_probe(suspect, probe, lr, probe.lowest);
  if (!probe.blew_up.empty()) suspect.evidence.back() += ", and it ended so: " + probe.blew_up;
  for (const double factor : {0.1, 0.01, 0.001}) {
    const ProbedSteps probed = probe_at(run, bench, probe, factor);
    tell_probe(suspect, probe, lr * factor, probed.lowest);
    suspect.is_cause = probe.blew_up.empty()
                           ? further(probe, probed.lowest)
                           : probed.finite && probe.start - probed.lowest > kSomeFall * probe.start;
    if (!suspect.is_cause) continue;
    suspect.evidence.push_back(suspect.next = "try optim.lr=" + format_number(lr * factor));
    break;
  }
  return suspect;
}

}  // namespace lft::debug
