#include "src/hf/exports/deltas.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "kernels/common/error.h"
#include "models/lora/registry.h"
#include "src/base/text.h"
#include "src/hf/exports/clients.h"

namespace lft::hf {
namespace {

/// Rounding tolerance: B's elements are multiplied once, products are sums of r terms.
constexpr double kRelative = 1e-5;

at::Tensor filled_up(const at::Tensor& tensor, int64_t dim, int64_t rank) {
  std::vector<int64_t> more = tensor.sizes().vec();
  more[static_cast<size_t>(dim)] = rank - tensor.size(dim);
  return at::cat({tensor, at::zeros(more, tensor.options())}, dim).contiguous();
}

/// 1 for a layer without experts.
int64_t experts_of(const lora::NamedTensors& tensors) {
  return tensors.at("lora_A").size(0) / tensors.at("lora_B").size(1);
}

at::Tensor delta_oi(const lora::NamedTensors& tensors, double scale) {
  return at::mm(tensors.at("lora_B"), tensors.at("lora_A")).mul_(scale);
}

}  // namespace

std::vector<std::string> modules_of(const Updates& updates) {
  std::vector<std::string> modules;
  for (const auto& [module, tensors] : updates.tensors) modules.push_back(module);
  return modules;
}

Updates baked(const Updates& updates) {
  const at::NoGradGuard no_grad;
  const int64_t rank = largest_rank(updates.lora, modules_of(updates));
  Updates plain{.lora = {.variant = lora::variants().front().name,
                         .rank = rank,
                         .alpha = static_cast<double>(rank),
                         .dropout = updates.lora.dropout},
                .tensors = {}};
  for (const auto& [module, tensors] : updates.tensors) {
    const double scale = lora::lora_scale(updates.lora.of(module));
    plain.tensors[module] = {{"lora_A", filled_up(tensors.at("lora_A"), 0, rank)},
                             {"lora_B", filled_up(tensors.at("lora_B") * scale, 1, rank)}};
  }
  return plain;
}

double compare_updates(const Updates& want, const Updates& got, const std::string& where) {
  const at::NoGradGuard no_grad;
  double worst = 0;
  const auto fail = [&](const std::string& module, const std::string& what) {
    throw Error(ErrorKind::kInternal,
                "the export reads back otherwise: " + where + ": " + module + ": " + what);
  };
  if (want.tensors.size() != got.tensors.size())
    fail("modules",
         std::to_string(got.tensors.size()) + " of " + std::to_string(want.tensors.size()));
  for (const auto& [module, tensors] : want.tensors) {
    const auto at = got.tensors.find(module);
    if (at == got.tensors.end()) fail(module, "absent");
    const int64_t experts = experts_of(tensors);
    if (experts != experts_of(at->second)) fail(module, "another number of experts");
    for (int64_t e = 0; e < experts; ++e) {
      const auto delta = [&](const Updates& of, const lora::NamedTensors& all) {
        return delta_oi(lora::expert_tensors(all, e, experts),
                        lora::lora_scale(of.lora.of(module)));
      };
      const at::Tensor expected = delta(want, tensors), found = delta(got, at->second);
      if (expected.sizes() != found.sizes()) fail(module, "another shape");
      const double largest = expected.abs().max().item<double>(),
                   off = (expected - found).abs().max().item<double>();
      if (!(off <= kRelative * largest)) fail(module, "off by " + format_number(off, "%.3g"));
      if (largest > 0) worst = std::max(worst, off / largest);
    }
    const lora::Variant& variant = lora::find_variant(want.lora.variant);
    for (const lora::AdapterTensor& further : lora::further_tensors(variant)) {
      if (!tensors.at(further.name).equal(at->second.at(further.name))) fail(module, further.name);
    }
  }
  return worst;
}

}  // namespace lft::hf
