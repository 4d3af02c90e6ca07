#include "src/train/proof/final_check.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>

#include <map>

#include "kernels/common/error.h"
#include "models/family/model.h"
#include "models/lora/inject.h"
#include "models/lora/inject_select.h"
#include "models/lora/trained_modules.h"
#include "models/ops/core/precision.h"
#include "src/base/text.h"

namespace lft::train {
namespace {

struct ProbeLogits {
  at::Tensor started, trained;
};

/// The logits with every adapter at its initial value, or without adapters if that is equivalent,
/// and with the trained ones. The same kernels compute both. The adapters are restored afterwards.
ProbeLogits probe_logits(family::Model& model, const family::Batch& probe) {
  const std::vector<lora::LinearSite> sites = lora::linear_sites(*model);
  std::vector<std::shared_ptr<layers::LinearAdapter>> adapters, stand_ins;
  for (const lora::LinearSite& site : sites) {
    layers::Linear layer = site.layer;
    adapters.push_back(layer->adapter());
    stand_ins.push_back(layer->adapter() ? layer->adapter()->at_start() : nullptr);
    layer->set_adapter(stand_ins.back());
  }
  ProbeLogits logits{.started = model->all_logits(probe), .trained = {}};
  for (size_t i = 0; i < sites.size(); ++i) {
    layers::Linear layer = sites[i].layer;
    if (stand_ins[i] == nullptr) {
      layer->set_adapter(adapters[i]);
      continue;
    }
    auto values = adapters[i]->named_parameters();
    for (auto& parameter : stand_ins[i]->named_parameters())
      parameter.value().copy_(values[parameter.key()]);
  }
  logits.trained = model->all_logits(probe);
  for (size_t i = 0; i < sites.size(); ++i) {
    layers::Linear layer = sites[i].layer;
    if (stand_ins[i] != nullptr) layer->set_adapter(adapters[i]);
  }
  return logits;
}

/// The initial value of every lora_B that was not zero.
std::map<const at::TensorImpl*, at::Tensor> starts_of_b(family::Model& model) {
  std::map<const at::TensorImpl*, at::Tensor> starts;
  for (const lora::LinearSite& site : lora::linear_sites(*model)) {
    if (site.layer->adapter() == nullptr) continue;
    const auto start = site.layer->adapter()->at_start();
    if (start == nullptr) continue;
    const at::Tensor b = site.layer->adapter()->named_parameters()["lora_B"];
    starts[b.unsafeGetTensorImpl()] = start->named_parameters()["lora_B"];
  }
  return starts;
}

}  // namespace

void check_trained(family::Model& model, const Optimizer& optimizer, const family::Batch& probe,
                   at::ScalarType compute) {
  const at::NoGradGuard no_grad;
  const std::map<const at::TensorImpl*, at::Tensor> starts = starts_of_b(model);
  std::vector<std::string> still_zero, never_reached;
  bool adapted = false;
  for (const Slot& slot : optimizer.slots()) {
    const at::Tensor& tensor = slot.param.tensor;
    if (!at::isfinite(tensor).all().item<bool>()) {
      refuse(ErrorKind::kNumeric, "a trained tensor is not finite", slot.param.name, {}, {},
             "go back to an earlier checkpoint with a lower optim.lr");
    }
    if (!slot.param.name.ends_with(lora::kLoraB)) continue;
    adapted = true;
    const auto start = starts.find(tensor.unsafeGetTensorImpl());
    if (start != starts.end() ? !tensor.equal(start->second)
                              : at::count_nonzero(tensor).item<int64_t>() > 0)
      continue;
    (slot.steps == 0 ? never_reached : still_zero).push_back(slot.param.name);
  }
  if (!never_reached.empty()) {
    refuse(ErrorKind::kNumeric, "adapters were never updated: no batch reached them",
           join(never_reached, ", ", 5), std::to_string(never_reached.size()) + " of them", {},
           "train longer, on data that reaches them, or drop them from lora.targets");
  }
  if (!still_zero.empty()) {
    refuse(ErrorKind::kNumeric,
           starts.empty() ? "adapters are still zero after training: they do nothing"
                          : "adapters are still as they started: they do nothing",
           join(still_zero, ", ", 5), std::to_string(still_zero.size()) + " of them", {},
           "check that optim.lr is above 0 and that warm-up ends before the run does");
  }
  if (!adapted) return;
  const ops::ComputeDtypeGuard guard(compute);
  const ProbeLogits logits = probe_logits(model, probe);
  if (at::equal(logits.trained, logits.started)) {
    refuse(ErrorKind::kNumeric, "the adapter does not change the model's answers",
           "logits of the probe sample",
           starts.empty() ? "the same bits with and without it" : "the same bits as at its start",
           {}, "train longer or with a higher optim.lr");
  }
}

}  // namespace lft::train
