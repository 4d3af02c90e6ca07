#include "src/train/optim/loss_scaler_misuse.h"

#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <sstream>
#include <unordered_set>
#include <utility>

#include "kernels/common/error.h"
#include "src/base/text.h"

namespace lft::train {
namespace {

using Node = torch::autograd::Node;
using Names = std::vector<std::string>;

constexpr const char* kUnfreeze =
    "make them trainable before the optimizer is built; an adapter loaded with \"inference_mode\": "
    "true looks like this until it is "
    "unfrozen";

[[noreturn]] void throw_misuse(ErrorInfo info) {
  throw Error(ErrorKind::kInternal, std::move(info));
}

/// "3 parameters: a, b, c"
std::string counted(const Names& names) {
  if (names.empty()) return "no parameter";
  return std::to_string(names.size()) + (names.size() == 1 ? " parameter: " : " parameters: ") +
         join(names, ", ", 4);
}

const char* stage_name(ScalerStage stage) {
  return stage == ScalerStage::kReady      ? "READY"
         : stage == ScalerStage::kUnscaled ? "UNSCALED"
                                           : "STEPPED";
}

std::string in_stage(const Names& names, ScalerStage stage) {
  return std::string("state ") + stage_name(stage) + ", optimizer of " + counted(names);
}

/// The names of the slots for whose number `holds` is true.
template <class Holds>
Names slots_where(const Optimizer& optimizer, Holds holds) {
  Names names;
  for (size_t i = 0; i < optimizer.slots().size(); ++i) {
    if (holds(i)) names.push_back(optimizer.slots()[i].param.name);
  }
  return names;
}

/// The same for their tensor.
template <class Holds>
Names names_where(const Optimizer& optimizer, Holds holds) {
  return slots_where(optimizer,
                     [&](size_t slot) { return holds(optimizer.slots()[slot].param.tensor); });
}

Names with_gradient(const Optimizer& optimizer) {
  return slots_where(optimizer, [&](size_t slot) { return optimizer.has_gradient(slot); });
}

Names all_names(const Optimizer& optimizer) {
  return names_where(optimizer, [](const at::Tensor&) { return true; });
}

bool has_gradient(const at::Tensor& tensor) { return tensor.grad().defined(); }

template <class Holds>
Names names_where(const std::vector<ScalerEvidence::Owned>& optimizer, Holds holds) {
  Names names;
  for (const ScalerEvidence::Owned& owned : optimizer) {
    const at::Tensor tensor(owned.tensor.lock());
    if (tensor.defined() && holds(tensor)) names.push_back(owned.name);
  }
  return names;
}

std::string shapes(const std::vector<at::Tensor>& tensors) {
  Names texts;
  for (const at::Tensor& tensor : tensors) {
    std::ostringstream text;
    text << tensor.sizes();
    texts.push_back(text.str());
  }
  return join(texts, ", ", 4);
}

/// Another optimizer's parameters have the gradients: it is the right one, or the one at hand was
/// rebuilt beside the model.
void blame_other_optimizer(const Optimizer& optimizer, const ScalerEvidence& seen,
                           const std::string& where, const std::string& absent) {
  const Names own = all_names(optimizer);
  for (const auto& other : seen.optimizers()) {
    const Names with = names_where(other, has_gradient);
    if (with.empty()) continue;
    const bool same_names = std::all_of(with.begin(), with.end(), [&](const auto& name) {
      return std::count(own.begin(), own.end(), name);
    });
    if (same_names) {
      throw_misuse({.what = "the optimizer was rebuilt on tensors that the model does not use",
                    .where = where,
                    .found = absent +
                             "; the gradients are on the tensors of the same names that an earlier "
                             "optimizer holds, " +
                             counted(with),
                    .expected = "an optimizer over the tensors that the forward pass reads",
                    .next = "build the optimizer from the model's present trainables"});
    }
    throw_misuse(
        {.what = "the gradients are on another optimizer's parameters",
         .where = where,
         .found = absent + "; another optimizer owns those that have one, " + counted(with),
         .expected = "the optimizer that owns the parameters with gradients",
         .next = "unscale and step that optimizer, or run backward() on a loss that depends on "
                 "this one's parameters"});
  }
}

/// What a graph that still lives can tell: backward() was not run on it, or it ends in tensors that
/// the optimizer does not hold.
void blame_graph(const Optimizer& optimizer, const ScalerEvidence& seen, const std::string& where,
                 const std::string& absent) {
  const std::vector<at::Tensor> reached = seen.reached();
  if (reached.empty()) return;
  const Names own = names_where(optimizer, [&](const at::Tensor& tensor) {
    return std::any_of(reached.begin(), reached.end(),
                       [&](const at::Tensor& leaf) { return leaf.is_same(tensor); });
  });
  if (!own.empty()) {
    throw_misuse(
        {.what = "backward() was not run on the scaled loss",
         .where = where,
         .found = absent + "; the graph of the loss is still there and reaches " + counted(own),
         .expected = "scale(loss).backward() before unscale()",
         .next = "run backward() on what scale() returns, and drop no gradients before the step"});
  }
  throw_misuse({.what = "the loss depends on other tensors than those the optimizer holds",
                .where = where,
                .found = absent + "; the graph of the loss ends in " +
                         std::to_string(reached.size()) + " other tensors, of shape " +
                         shapes(reached),
                .expected = "an optimizer over the tensors that the forward pass reads",
                .next = "where the model was rebuilt or cast after the optimizer, build it from "
                        "the present trainables; else step the optimizer of "
                        "those tensors"});
}

/// For a loss without a graph: which parameters that had gradients before are frozen now.
std::string frozen_too(const ScalerEvidence& seen) {
  Names frozen;
  for (const auto& optimizer : seen.optimizers()) {
    const Names off =
        names_where(optimizer, [](const at::Tensor& tensor) { return !tensor.requires_grad(); });
    frozen.insert(frozen.end(), off.begin(), off.end());
  }
  return frozen.empty() ? "" : "; requires_grad is off on " + counted(frozen);
}

}  // namespace

void ScalerEvidence::saw_loss(const at::Tensor& loss) {
  graph_ = loss.grad_fn();
  ++losses_;
}

void ScalerEvidence::saw_gradients(const Optimizer& optimizer) {
  const std::vector<Slot>& slots = optimizer.slots();
  const auto is_known = [&](const std::vector<Owned>& known) {
    return std::equal(known.begin(), known.end(), slots.begin(), slots.end(),
                      [](const Owned& owned, const Slot& slot) {
                        return owned.tensor._unsafe_get_target() ==
                               slot.param.tensor.unsafeGetTensorImpl();
                      });
  };
  if (std::any_of(optimizers_.begin(), optimizers_.end(), is_known)) return;
  std::erase_if(optimizers_, [](const std::vector<Owned>& known) {
    return std::all_of(known.begin(), known.end(),
                       [](const Owned& owned) { return owned.tensor.expired(); });
  });
  std::vector<Owned> owned;
  for (const Slot& slot : slots)
    owned.push_back(
        {slot.param.name, decltype(Owned::tensor)(slot.param.tensor.getIntrusivePtr())});
  optimizers_.push_back(std::move(owned));
}

void ScalerEvidence::next_step() {
  graph_.reset();
  losses_ = 0;
}

std::vector<at::Tensor> ScalerEvidence::reached() const {
  const std::shared_ptr<Node> root = graph_.lock();
  std::vector<at::Tensor> leaves;
  std::vector<Node*> open;
  std::unordered_set<Node*> met;
  if (root != nullptr) open.push_back(root.get());
  while (!open.empty()) {
    Node* node = open.back();
    open.pop_back();
    if (!met.insert(node).second) continue;
    if (const auto* leaf = dynamic_cast<torch::autograd::AccumulateGrad*>(node))
      leaves.push_back(leaf->variable);
    for (const torch::autograd::Edge& edge : node->next_edges()) {
      if (edge.is_valid()) open.push_back(edge.function.get());
    }
  }
  return leaves;
}

void throw_wrong_stage(const std::string& call, const Optimizer& optimizer, ScalerStage stage,
                       const std::vector<const Optimizer*>& unscaled) {
  const Names names = all_names(optimizer);
  const std::string where = in_stage(names, stage);
  if (call == "unscale" && stage == ScalerStage::kUnscaled) {
    throw_misuse({.what = "unscale() was called twice for one optimizer",
                  .where = where,
                  .found = "its gradients are unscaled and checked already",
                  .expected = "one unscale() between two update()",
                  .next = "accumulate all micro-batches first, then unscale() once"});
  }
  if (call == "unscale") {
    throw_misuse({.what = "unscale() after step()",
                  .where = where,
                  .found = "the optimizer has stepped since the last update()",
                  .expected = "update() between a step and the next unscale()",
                  .next = "call update() once, after every optimizer has stepped"});
  }
  if (stage == ScalerStage::kStepped) {
    throw_misuse({.what = "step() was called twice for one optimizer",
                  .where = where,
                  .found = "the optimizer has stepped since the last update()",
                  .expected = "one step() between two update()",
                  .next = "call update() once, after every optimizer has stepped"});
  }
  if (unscaled.empty()) {
    throw_misuse({.what = "step() without a check: unscale() was not called for this optimizer",
                  .where = where,
                  .found = "gradients on " + counted(with_gradient(optimizer)),
                  .expected = "unscale() before step()",
                  .next = "call backward(), unscale(), step(), update() in this order"});
  }
  const Names others = all_names(*unscaled.front());
  throw_misuse(
      {.what = others == names ? "the optimizer was rebuilt between unscale() and step()"
                               : "step() on another optimizer than the one that was unscaled",
       .where = where,
       .found = "unscaled was the optimizer of " + counted(others) + "; gradients here on " +
                counted(with_gradient(optimizer)),
       .expected = "the same optimizer in unscale() and step()",
       .next = "build optimizers before the first step and keep them; unscale each that steps"});
}

void throw_nothing_checked() {
  throw_misuse({.what = "update() with nothing checked",
                .where = "state READY, every optimizer",
                .found = "no unscale() since the last update()",
                .expected = "unscale() and step() before update()",
                .next = "leave update() out where a whole step is left out"});
}

void throw_no_gradient(const Optimizer& optimizer, const ScalerEvidence& seen) {
  const Names names = all_names(optimizer);
  const std::string where = in_stage(names, ScalerStage::kReady);
  if (names.empty()) {
    throw_misuse({.what = "the optimizer holds no parameter",
                  .where = where,
                  .found = {},
                  .expected = {},
                  .next = "build it from the trainables"});
  }
  const Names frozen =
      names_where(optimizer, [](const at::Tensor& tensor) { return !tensor.requires_grad(); });
  const Names live =
      names_where(optimizer, [](const at::Tensor& tensor) { return tensor.requires_grad(); });
  if (live.empty()) {
    throw_misuse({.what = "every parameter of the optimizer is frozen",
                  .where = where,
                  .found = "requires_grad is off, so no gradient arrives, on " + counted(frozen),
                  .expected = "at least one trainable parameter",
                  .next = kUnfreeze});
  }
  std::string absent = "no gradient on " + counted(live);
  if (!frozen.empty()) absent += "; frozen, requires_grad is off, " + counted(frozen);
  blame_other_optimizer(optimizer, seen, where, absent);
  if (seen.losses() == 0) {
    throw_misuse(
        {.what = "the backward pass was not run: no loss was scaled since the last update()",
         .where = where,
         .found = absent,
         .expected = "scale(loss).backward() before unscale()",
         .next = "leave unscale(), step() and update() out where the batch gives no loss"});
  }
  blame_graph(optimizer, seen, where, absent);
  throw_misuse(
      {.what = "the loss did not reach the optimizer's parameters, or backward() was not run on it",
       .where = where,
       .found = absent + "; losses scaled since the last update: " + std::to_string(seen.losses()),
       .expected = "scale(loss).backward() on a loss that depends on them",
       .next = "look for a missing backward(), for outputs that were detached, and for a model "
               "rebuilt or cast after the optimizer was built"});
}

void require_scaled(const Optimizer& optimizer, const ScalerEvidence& seen) {
  if (seen.losses() > 0) return;
  throw_misuse({.what = "the gradients are not scaled: no loss was scaled since the last update()",
                .where = in_stage(all_names(optimizer), ScalerStage::kReady),
                .found = "gradients on " + counted(with_gradient(optimizer)),
                .expected = "gradients of scale(loss).backward()",
                .next = "run backward() on what scale() returns, and drop the gradients of one "
                        "step before the next"});
}

void throw_gradients_changed(const Optimizer& optimizer, const std::vector<bool>& present) {
  const Names changed = slots_where(optimizer, [&](size_t slot) {
    return slot >= present.size() || optimizer.has_gradient(slot) != present[slot];
  });
  throw_misuse(
      {.what = "gradients came or went between unscale() and step()",
       .where = in_stage(all_names(optimizer), ScalerStage::kUnscaled),
       .found = "changed are " + counted(changed),
       .expected = "the gradients that were checked",
       .next = "drop gradients after step(), and run no backward() between unscale() and step()"});
}

void require_scalar(const at::Tensor& loss) {
  if (!loss.defined() || loss.numel() == 0) {
    throw_misuse(
        {.what = "the batch is empty: there is no loss",
         .where = {},
         .found = loss.defined() ? "a loss of shape " + shapes({loss}) : "an undefined loss",
         .expected = "one number",
         .next = "leave the whole step out for a batch without a supervised token"});
  }
  if (loss.numel() != 1) {
    throw_misuse(
        {.what = "the loss is not a scalar",
         .where = {},
         .found = "a loss of shape " + shapes({loss}),
         .expected = "one number",
         .next =
             "reduce it, for example to the sum over supervised tokens divided by their count"});
  }
}

void require_graph(const at::Tensor& loss, const ScalerEvidence& seen) {
  if (loss.is_inference()) {
    throw_misuse({.what = "the forward pass ran in inference mode",
                  .where = {},
                  .found = "the loss is an inference tensor, without a graph" + frozen_too(seen),
                  .expected = "a loss with a graph to run backward() on",
                  .next = "run the forward pass of a step outside every InferenceMode scope"});
  }
  const std::string graph = loss.grad_fn() ? "the loss has a graph" : "the loss has no graph";
  if (!c10::GradMode::is_enabled()) {
    const std::string mode =
        c10::InferenceMode::is_enabled() ? "inference mode is on" : "grad mode is off";
    throw_misuse({.what = "the step runs under no-grad or inference mode",
                  .where = {},
                  .found = mode + ", " + graph + frozen_too(seen),
                  .expected = "gradients on, in the forward pass and where the loss is scaled",
                  .next = "end the NoGradGuard or InferenceMode scope before the forward pass"});
  }
  if (!loss.grad_fn()) {
    throw_misuse(
        {.what = "the loss is detached from the model",
         .where = {},
         .found = (loss.requires_grad() ? "the loss requires a gradient itself and has no graph"
                                        : graph) +
                  frozen_too(seen),
         .expected = "a loss with a graph to run backward() on",
         .next = "it was detached or copied, or the forward pass ran under no-grad, or the batch "
                 "reaches no trainable, or all trainables are "
                 "frozen: " +
                 std::string(kUnfreeze)});
  }
}

}  // namespace lft::train
