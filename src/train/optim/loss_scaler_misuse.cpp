#include "src/train/optim/loss_scaler_misuse.h"

#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
#include <c10/util/StringUtil.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <functional>
#include <unordered_set>

#include "kernels/common/error.h"
#include "src/base/text.h"

namespace lft::train {
namespace {

using Names = std::vector<std::string>;

constexpr const char* kOrder =
    "accumulate scale(loss).backward() of all micro-batches, then call unscale(), step() and "
    "update() once";
constexpr const char* kRebuild =
    "build the optimizer from the model's present trainables, or step the one that owns them";
constexpr const char* kForward = "the optimizer of the tensors that the forward pass reads";
constexpr const char* kScaled = "scale(loss).backward() before unscale()";
constexpr const char* kUnfreeze =
    "make them trainable before the optimizer is built; an adapter loaded with \"inference_mode\": "
    "true looks like this until it is unfrozen";

[[noreturn]] void misused(std::string what, std::string where, std::string found,
                          std::string expected, std::string next) {
  refuse(ErrorKind::kInternal, std::move(what), std::move(where), std::move(found),
         std::move(expected), std::move(next));
}

/// For example "3 parameters: a, b, c".
std::string counted(const Names& names) {
  if (names.empty()) return "no parameter";
  return std::to_string(names.size()) + (names.size() == 1 ? " parameter: " : " parameters: ") +
         join(names, ", ", 4);
}

/// The names of the slots for which `holds` is true.
template <class Holds>
Names slots_where(const Optimizer& optimizer, Holds holds) {
  Names names;
  for (size_t i = 0; i < optimizer.slots().size(); ++i) {
    if (holds(i)) names.push_back(optimizer.slots()[i].param.name);
  }
  return names;
}

Names all_names(const Optimizer& optimizer) {
  return slots_where(optimizer, [](size_t) { return true; });
}

std::string on_gradients(const Optimizer& optimizer) {
  return counted(slots_where(optimizer, [&](size_t i) { return optimizer.has_gradient(i); }));
}

std::string in_stage(const Optimizer& optimizer, ScalerStage stage) {
  constexpr const char* kStages[] = {"READY", "UNSCALED", "STEPPED"};
  return std::string("state ") + kStages[static_cast<size_t>(stage)] + ", optimizer of " +
         counted(all_names(optimizer));
}

template <class Holds>
Names seen_where(const std::vector<ScalerEvidence::Owned>& optimizer, Holds holds) {
  Names names;
  for (const ScalerEvidence::Owned& owned : optimizer) {
    const at::Tensor tensor(owned.tensor.lock());
    if (tensor.defined() && holds(tensor)) names.push_back(owned.name);
  }
  return names;
}

/// Where the gradients went instead of `own`: to another optimizer's parameters, so that either
/// that optimizer is the right one or this one was built for another model; or nowhere, as a living
/// graph shows: backward() was not run on it, or it ends in other tensors.
void blame(const Optimizer& optimizer, const ScalerEvidence& seen, const std::string& where,
           const std::string& absent) {
  const Names own = all_names(optimizer);
  for (const auto& other : seen.optimizers()) {
    const Names with = seen_where(other, [](const at::Tensor& t) { return t.grad().defined(); });
    if (with.empty()) continue;
    if (std::ranges::all_of(with,
                            [&](const auto& name) { return std::ranges::count(own, name) > 0; })) {
      misused("the optimizer was rebuilt on tensors that the model does not use", where,
              absent + "; they are on those of an earlier optimizer, " + counted(with), kForward,
              kRebuild);
    }
    misused("the gradients are on another optimizer's parameters", where,
            absent + "; another optimizer owns those that have one, " + counted(with), kForward,
            kRebuild);
  }
  if (seen.losses() == 0) {
    misused("the backward pass was not run: no loss was scaled since the last update()", where,
            absent, kScaled,
            "leave unscale(), step() and update() out where the batch gives no loss");
  }
  const std::vector<at::Tensor> reached = seen.reached();
  if (reached.empty()) return;
  const Names mine = slots_where(optimizer, [&](size_t i) {
    const at::Tensor& tensor = optimizer.slots()[i].param.tensor;
    return std::ranges::any_of(reached, [&](const auto& leaf) { return leaf.is_same(tensor); });
  });
  if (!mine.empty()) {
    misused("backward() was not run on the scaled loss", where,
            absent + "; the graph of the loss is still there and reaches " + counted(mine), kScaled,
            kOrder);
  }
  misused("the loss depends on other tensors than the optimizer's", where,
          absent + c10::str("; the graph of the loss ends in ", reached.size(),
                            " other tensors, of shape ", reached[0].sizes(),
                            reached.size() > 1 ? ", ..." : ""),
          kForward, kRebuild);
}

/// For a loss without a graph: the parameters that had gradients before and are frozen now.
std::string frozen_too(const ScalerEvidence& seen) {
  Names frozen;
  for (const auto& optimizer : seen.optimizers()) {
    for (std::string& name :
         seen_where(optimizer, [](const at::Tensor& t) { return !t.requires_grad(); }))
      frozen.push_back(std::move(name));
  }
  return frozen.empty() ? "" : "; requires_grad is off on " + counted(frozen);
}

}  // namespace

void ScalerEvidence::saw_loss(const at::Tensor& loss) {
  graph_ = loss.grad_fn();
  ++losses_;
}

void ScalerEvidence::saw_gradients(const Optimizer& optimizer) {
  const auto same = [](const Owned& owned, const Slot& slot) {
    return owned.tensor._unsafe_get_target() == slot.param.tensor.unsafeGetTensorImpl();
  };
  for (const std::vector<Owned>& known : optimizers_) {
    if (std::ranges::equal(known, optimizer.slots(), same)) return;
  }
  std::erase_if(optimizers_, [](const std::vector<Owned>& known) {
    return std::ranges::all_of(known, [](const Owned& owned) { return owned.tensor.expired(); });
  });
  std::vector<Owned>& owned = optimizers_.emplace_back();
  for (const Slot& slot : optimizer.slots())
    owned.push_back(
        {slot.param.name, decltype(Owned::tensor)(slot.param.tensor.getIntrusivePtr())});
}

std::vector<at::Tensor> ScalerEvidence::reached() const {
  std::vector<at::Tensor> leaves;
  const std::shared_ptr<torch::autograd::Node> root = graph_.lock();
  std::vector<torch::autograd::Node*> open = {root.get()};
  std::unordered_set<torch::autograd::Node*> met = {nullptr};
  while (!open.empty()) {
    torch::autograd::Node* const node = open.back();
    open.pop_back();
    if (!met.insert(node).second) continue;
    if (const auto* leaf = dynamic_cast<torch::autograd::AccumulateGrad*>(node))
      leaves.push_back(leaf->variable);
    for (const torch::autograd::Edge& edge : node->next_edges())
      open.push_back(edge.function.get());
  }
  return leaves;
}

void throw_wrong_stage(const std::string& call, const Optimizer& optimizer, ScalerStage stage,
                       const std::vector<const Optimizer*>& unscaled) {
  const std::string where = in_stage(optimizer, stage);
  if (stage != ScalerStage::kReady) {
    const bool stepped = stage == ScalerStage::kStepped, late = stepped && call == "unscale";
    misused(
        late ? "unscale() after step()" : call + "() was called twice for one optimizer", where,
        stepped ? "it has stepped since the last update()" : "its gradients are checked already",
        "one unscale() and one step() between two update()", kOrder);
  }
  const std::string found = "gradients here on " + on_gradients(optimizer);
  if (unscaled.empty()) {
    misused("step() without a check: unscale() was not called for this optimizer", where, found,
            "unscale() before step()", kOrder);
  }
  const Names others = all_names(*unscaled.front());
  misused(others == all_names(optimizer)
              ? "the optimizer was rebuilt between unscale() and step()"
              : "step() on another optimizer than the one that was unscaled",
          where, "unscaled was the optimizer of " + counted(others) + "; " + found,
          "the same optimizer in unscale() and step()",
          "build optimizers before the first step and keep them; unscale each that steps");
}

void throw_nothing_checked() {
  misused("update() with nothing checked", "state READY, every optimizer",
          "no unscale() since the last update()", "unscale() and step() before update()",
          "leave update() out where a whole step is left out");
}

void throw_no_gradient(const Optimizer& optimizer, const ScalerEvidence& seen) {
  const std::string where = in_stage(optimizer, ScalerStage::kReady);
  const auto trains = [&](size_t i) { return optimizer.slots()[i].param.tensor.requires_grad(); };
  const Names live = slots_where(optimizer, trains),
              frozen = slots_where(optimizer, std::not_fn(trains));
  if (optimizer.slots().empty())
    misused("the optimizer has no parameters", where, {}, {}, kRebuild);
  if (live.empty()) {
    misused("every parameter of the optimizer is frozen", where,
            "requires_grad is off, so no gradient arrives, on " + counted(frozen),
            "at least one trainable parameter", kUnfreeze);
  }
  std::string absent = "no gradient on " + counted(live);
  if (!frozen.empty()) absent += "; frozen, requires_grad is off, " + counted(frozen);
  blame(optimizer, seen, where, absent);
  misused("the loss did not reach the optimizer's parameters, or backward() was not run on it",
          where, absent + c10::str("; losses scaled since the last update: ", seen.losses()),
          kScaled,
          "look for a missing backward(), detached outputs, and a model rebuilt or cast later");
}

void require_scaled(const Optimizer& optimizer, const ScalerEvidence& seen) {
  if (seen.losses() > 0) return;
  misused("the gradients are not scaled: no loss was scaled since the last update()",
          in_stage(optimizer, ScalerStage::kReady), "gradients on " + on_gradients(optimizer),
          kScaled, kOrder);
}

void throw_gradients_changed(const Optimizer& optimizer, const std::vector<bool>& present) {
  const Names changed = slots_where(optimizer, [&](size_t slot) {
    return slot >= present.size() || optimizer.has_gradient(slot) != present[slot];
  });
  misused("gradients came or went between unscale() and step()",
          in_stage(optimizer, ScalerStage::kUnscaled), "changed are " + counted(changed),
          "the gradients that were checked",
          "drop gradients after step(), and run no backward() between unscale() and step()");
}

void require_scalar(const at::Tensor& loss) {
  if (loss.defined() && loss.numel() == 1) return;
  const bool empty = !loss.defined() || loss.numel() == 0;
  misused(empty ? "the batch is empty: there is no loss" : "the loss is not a scalar", {},
          loss.defined() ? c10::str("a loss of shape ", loss.sizes()) : "an undefined loss",
          "one number",
          empty ? "leave the whole step out for a batch without a supervised token"
                : "reduce it, for example to its sum divided by the supervised tokens");
}

void require_graph(const at::Tensor& loss, const ScalerEvidence& seen) {
  const std::string graph =
      (loss.grad_fn()         ? "the loss has a graph"
       : loss.requires_grad() ? "the loss requires a gradient itself and has no graph"
                              : "the loss has no graph") +
      frozen_too(seen);
  const bool inferred = loss.is_inference(), inference = c10::InferenceMode::is_enabled();
  if (inferred || !c10::GradMode::is_enabled()) {
    misused(inferred ? "the forward pass ran in inference mode"
                     : "the step runs under no-grad or inference mode",
            {},
            (inferred    ? "the loss is an inference tensor, "
             : inference ? "inference mode is on, "
                         : "grad mode is off, ") +
                graph,
            "gradients on, in the forward pass and where the loss is scaled",
            "run the forward pass of a step outside every InferenceMode scope and NoGradGuard");
  }
  if (loss.grad_fn()) return;
  misused("the loss is detached from the model", {}, graph,
          "a loss with a graph to run backward() on",
          std::string("it was detached or copied, or the forward pass ran under no-grad, or the "
                      "batch reaches no trainable, or all trainables are frozen: ") +
              kUnfreeze);
}

}  // namespace lft::train
