#include "src/train/proof/adapter_reach.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>

#include "models/family/model.h"
#include "models/lora/inject.h"
#include "models/lora/inject_select.h"
#include "models/lora/lora.h"
#include "src/base/text.h"
#include "src/train/optim/schedule.h"

namespace lft::train {
namespace {

/// No rule changes an element by more than this multiple of the learning rate in a step: Adam's
/// bound is (1 - beta1) / sqrt(1 - beta2), Muon's grows with the root of a side.
constexpr double kFarthestStep = 32;
constexpr double kMargin = 1.0 / 16;  // fraction of a rounding

/// Infinite if the layer has an adapter that is not known to be a plain product.
double layer_reach(const layers::LinearImpl& layer, double moves) {
  const auto* const lora = dynamic_cast<const lora::LoraAdapter*>(layer.adapter().get());
  if (lora == nullptr || layer.adapter()->at_start() != nullptr || layer.weight.is_meta())
    return std::numeric_limits<double>::infinity();
  const double further = moves * std::sqrt(static_cast<double>(lora->a_ri.size(0)));
  const auto farthest = [&](const at::Tensor& matrix, int64_t along) {
    return matrix.detach().to(at::kFloat).norm(2, along).max().item<double>() + further;
  };
  const double weight = layer.weight.detach().abs().max().item<double>();
  return std::abs(lora->scale()) * farthest(lora->b_or, 1) * farthest(lora->a_ri, 0) / weight;
}

/// The fraction of a weight below which the compute dtype rounds a change away.
double lost_share(at::ScalarType compute) {
  const double unit = compute == at::kHalf ? 0x1p-11 : compute == at::kBFloat16 ? 0x1p-8 : 0x1p-24;
  return kMargin * unit;
}

}  // namespace

double adapter_reach(family::Model& model, double moves, double enough) {
  const at::NoGradGuard no_grad;
  double reach = -1;
  for (const lora::LinearSite& site : lora::linear_sites(*model)) {
    if (site.layer->adapter() == nullptr) continue;
    reach = std::max(reach, layer_reach(*site.layer, moves));
    if (reach >= enough) break;
  }
  return reach < 0 ? std::numeric_limits<double>::infinity() : reach;
}

std::string judge_reach(family::Model& model, const recipe::Recipe& recipe, int64_t steps,
                        at::ScalarType compute) {
  const recipe::Recipe::Optim& optim = recipe.optim;
  const Schedule schedule = Schedule::make(optim, steps);
  double rates = 0;
  for (int64_t step = 0; step < steps; ++step) rates += schedule.factor(step);
  rates *= std::max({optim.lr, optim.projector_lr, optim.vision_lr}) *
           std::max(1.0, optim.lora_plus_ratio);
  const double lost = lost_share(compute),
               reach = adapter_reach(model, kFarthestStep * rates, /*enough=*/lost);
  if (!(reach < lost)) return "";
  return "the adapters cannot change the output: after all " + std::to_string(steps) +
         " steps they change the weights by at most " + format_number(reach) +
         " of their size, and updates below " + format_number(lost) +
         " are lost to rounding. Look at lora.alpha (" + format_number(recipe.lora.alpha) +
         "; usual is twice lora.rank) and optim.lr (" + format_number(optim.lr) + ")";
}

}  // namespace lft::train
