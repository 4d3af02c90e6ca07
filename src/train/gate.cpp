#include "src/train/gate.h"

#include <ATen/Functions.h>

#include "kernels/common/error.h"
#include "models/lora/inject.h"
#include "models/ops/precision.h"
#include "src/base/text.h"

namespace lft {
namespace {

[[noreturn]] void reject(const std::string& what, const std::string& where, const std::string& found, const std::string& next) {
  throw Error(ErrorKind::kNumeric, {.what = what, .where = where, .found = found, .expected = {}, .next = next});
}

/// The logits without any adapter; they are back in place afterwards.
at::Tensor base_logits(Llava& model, const LlavaBatch& probe) {
  const std::vector<LinearSite> sites = linear_sites(*model);
  std::vector<std::shared_ptr<LinearAdapter>> adapters;
  for (const LinearSite& site : sites) {
    Linear layer = site.layer;
    adapters.push_back(layer->adapter());
    layer->set_adapter(nullptr);
  }
  const at::Tensor logits = model->all_logits(probe);
  for (size_t i = 0; i < sites.size(); ++i) {
    Linear layer = sites[i].layer;
    if (adapters[i] != nullptr) layer->set_adapter(adapters[i]);
  }
  return logits;
}

}  // namespace

void check_trained(Llava& model, const AdamW& optimizer, const LlavaBatch& probe, at::ScalarType compute) {
  const at::NoGradGuard no_grad;
  std::vector<std::string> still_zero, never_reached;
  bool adapted = false;
  for (const AdamSlot& slot : optimizer.slots()) {
    const at::Tensor& tensor = slot.param.tensor;
    if (!at::isfinite(tensor).all().item<bool>()) {
      reject("a trained tensor is not finite", slot.param.name, {}, "go back to an earlier checkpoint with a lower optim.lr");
    }
    if (!slot.param.name.ends_with(".lora_B.weight")) continue;
    adapted = true;
    if (at::count_nonzero(tensor).item<int64_t>() > 0) continue;
    (slot.steps == 0 ? never_reached : still_zero).push_back(slot.param.name);
  }
  if (!never_reached.empty()) {
    reject("adapters were never updated: no batch reached them", join(never_reached, ", ", 5),
           std::to_string(never_reached.size()) + " of them", "train longer, on data that reaches them, or drop them from lora.targets");
  }
  if (!still_zero.empty()) {
    reject("adapters are still zero after training: they do nothing", join(still_zero, ", ", 5),
           std::to_string(still_zero.size()) + " of them", "check that optim.lr is above 0 and that warm-up ends before the run does");
  }
  if (!adapted) return;
  const ComputeDtypeGuard guard(compute);
  if (at::equal(model->all_logits(probe), base_logits(model, probe))) {
    reject("the adapter does not change the model's answers", "logits of the probe sample", "the same bits with and without it",
           "train longer or with a higher optim.lr");
  }
}

}  // namespace lft
