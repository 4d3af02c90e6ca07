#include "src/train/proof/final_check.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>

#include "kernels/common/error.h"
#include "models/lora/inject.h"
#include "models/lora/trained_modules.h"
#include "models/ops/core/precision.h"
#include "src/base/text.h"

namespace lft::train {
namespace {

/// The logits without any adapter; they are back in place afterwards.
at::Tensor base_logits(llava::Llava& model, const llava::LlavaBatch& probe) {
  const std::vector<lora::LinearSite> sites = lora::linear_sites(*model);
  std::vector<std::shared_ptr<layers::LinearAdapter>> adapters;
  for (const lora::LinearSite& site : sites) {
    layers::Linear layer = site.layer;
    adapters.push_back(layer->adapter());
    layer->set_adapter(nullptr);
  }
  const at::Tensor logits = model->all_logits(probe);
  for (size_t i = 0; i < sites.size(); ++i) {
    layers::Linear layer = sites[i].layer;
    if (adapters[i] != nullptr) layer->set_adapter(adapters[i]);
  }
  return logits;
}

}  // namespace

void check_trained(llava::Llava& model, const Optimizer& optimizer, const llava::LlavaBatch& probe,
                   at::ScalarType compute) {
  const at::NoGradGuard no_grad;
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
    if (at::count_nonzero(tensor).item<int64_t>() > 0) continue;
    (slot.steps == 0 ? never_reached : still_zero).push_back(slot.param.name);
  }
  if (!never_reached.empty()) {
    refuse(ErrorKind::kNumeric, "adapters were never updated: no batch reached them",
           join(never_reached, ", ", 5), std::to_string(never_reached.size()) + " of them", {},
           "train longer, on data that reaches them, or drop them from lora.targets");
  }
  if (!still_zero.empty()) {
    refuse(ErrorKind::kNumeric, "adapters are still zero after training: they do nothing",
           join(still_zero, ", ", 5), std::to_string(still_zero.size()) + " of them", {},
           "check that optim.lr is above 0 and that warm-up ends before the run does");
  }
  if (!adapted) return;
  const ops::ComputeDtypeGuard guard(compute);
  if (at::equal(model->all_logits(probe), base_logits(model, probe))) {
    refuse(ErrorKind::kNumeric, "the adapter does not change the model's answers",
           "logits of the probe sample", "the same bits with and without it", {},
           "train longer or with a higher optim.lr");
  }
}

}  // namespace lft::train
