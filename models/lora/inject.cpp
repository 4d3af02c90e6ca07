#include "models/lora/inject.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "kernels/common/error.h"
#include "kernels/common/philox.h"
#include "models/layers/embedding.h"
#include "models/lora/inject_select.h"
#include "models/lora/registry.h"
#include "models/ops/core/parallel.h"

namespace lft::lora {
namespace {

constexpr std::string_view kAdapterInfix = ".adapter.";

/// Uniform in [-1 / sqrt(in), 1 / sqrt(in)), equal to kaiming_uniform with a = sqrt(5).
void fill_a(const at::Tensor& a_ri, uint64_t seed, const std::string& site) {
  const at::NoGradGuard no_grad;
  const uint64_t stream = philox_stream(site.data(), site.size(), 0, 0);
  const float bound = 1.0f / std::sqrt(static_cast<float>(a_ri.size(1)));
  at::Tensor values = at::empty(a_ri.sizes(), at::TensorOptions().dtype(at::kFloat));
  float* out = values.mutable_data_ptr<float>();
  const int64_t count = values.numel();
  ops::parallel_for((count + 3) / 4, 4096, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) {
      const PhiloxBlock random = philox_block(seed, stream, static_cast<uint64_t>(block));
      for (int64_t i = 4 * block; i < std::min(count, 4 * block + 4); ++i) {
        out[i] =
            bound * (static_cast<float>(random.word[i % 4] >> 8) * (2.0f / 16777216.0f) - 1.0f);
      }
    }
  });
  a_ri.copy_(values);
}

/// PEFT's adapters of experts are plain LoRA without dropout.
void check_experts(const std::string& site, const Variant& variant, const LoraOptions& options) {
  const bool plain = variant.memory.low_rank_only && !variant.changes_weight;
  if (plain && options.dropout == 0) return;
  throw Error(ErrorKind::kUsage,
              {.what = plain ? "an adapter of experts has no dropout"
                             : "experts have no adapter of this variant",
               .where = std::string(plain ? "lora.dropout" : "lora.variant") + ", at " + site,
               .found = plain ? std::to_string(options.dropout) : options.variant,
               .expected = plain ? "0, as PEFT requires" : "lora or rslora, as PEFT requires",
               .next = "or take experts out of lora.targets"});
}

std::string canonical_parameter(const std::string& name) {
  const size_t infix = name.rfind(kAdapterInfix);
  if (infix == std::string::npos) return name;
  const std::string part = name.substr(infix + kAdapterInfix.size());
  for (const AdapterTensor& tensor : adapter_tensors()) {
    if (tensor.name == part) return name.substr(0, infix) + "." + tensor.stored;
  }
  return name.substr(0, infix) + "." + part + ".weight";
}

/// The low-precision copies of each adapter that has any, A's first; in module order.
std::vector<std::vector<ops::ShadowPtr>> shadows_of(const torch::nn::Module& model) {
  std::vector<std::vector<ops::ShadowPtr>> all;
  for (const auto& module : model.modules()) {
    const auto* adapter = dynamic_cast<const layers::LinearAdapter*>(module.get());
    if (adapter != nullptr && !adapter->shadows().empty()) all.push_back(adapter->shadows());
  }
  return all;
}

}  // namespace

std::string scope_of(const std::string& canonical) {
  if (canonical.starts_with("language_model.")) return "llm";
  return canonical.starts_with("multi_modal_projector.") ? "projector" : "vision";
}

void inject_lora(const std::vector<LinearSite>& sites, const LoraOptions& options, uint64_t seed) {
  const Variant& variant = find_variant(options.variant);
  for (const LinearSite& site : sites) {
    const LoraOptions one = options.of(site.name);
    const int64_t saved = saved_options(one).rank;
    const int64_t out = site.layer->outputs(), in = site.layer->weight.size(1);
    if (site.layer->experts > 0) check_experts(site.name, variant, one);
    // A variant that begins with the weight has as many directions as the smaller side.
    const bool of_weight = variant.changes_weight;
    const int64_t side = of_weight ? std::min(in, out) : std::max(in, out),
                  limit = saved > one.rank ? side * one.rank / saved : side;
    if (one.rank >= 1 && one.rank <= limit) continue;
    throw Error(
        ErrorKind::kUsage,
        {.what = "the rank does not fit a layer",
         .where = "lora.rank, at " + site.name,
         .found = std::to_string(one.rank),
         .expected = "1 to " + std::to_string(limit) + (limit < side ? " (part of the" : " (the") +
                     (of_weight ? " smaller" : " larger") + " side of the layer's weight)",
         .next = {}});
  }
  for (const LinearSite& site : sites) {
    layers::Linear layer = site.layer;
    const std::shared_ptr<layers::LinearAdapter> adapter =
        variant.make(*layer, options.of(site.name));
    const at::NoGradGuard no_grad;
    auto parameters = adapter->named_parameters();
    fill_a(parameters["lora_A"], seed, site.name);
    parameters["lora_B"].zero_();
    if (variant.begin != nullptr) variant.begin(*layer, *adapter);
    layer->set_adapter(adapter);
  }
}

void keep_shadows(const torch::nn::Module& model, at::ScalarType dtype) {
  if (dtype == at::kFloat) return;  // products use the master weights
  std::vector<ops::ShadowPtr> of_a, others;
  for (const std::vector<ops::ShadowPtr>& of_adapter : shadows_of(model)) {
    for (const ops::ShadowPtr& shadow : of_adapter)
      (shadow == of_adapter.front() ? of_a : others).push_back(shadow);
  }
  for (const std::vector<ops::ShadowPtr>& group : {of_a, others}) {
    int64_t count = 0;
    for (const ops::ShadowPtr& shadow : group) count += shadow->master().numel();
    if (count == 0) continue;
    const at::Tensor all = at::empty({count}, group.front()->master().options().dtype(dtype));
    int64_t first = 0;
    for (const ops::ShadowPtr& shadow : group) {
      const at::Tensor& master = shadow->master();
      shadow->keep(all.narrow(0, first, master.numel()).view(master.sizes()));
      shadow->refresh();
      first += master.numel();
    }
  }
}

std::set<std::string> embedding_tables(const torch::nn::Module& model) {
  std::set<std::string> names;
  for (const auto& module : model.named_modules()) {
    if (module.value()->as<layers::EmbeddingImpl>() != nullptr)
      names.insert(module.key() + ".weight");
  }
  return names;
}

std::vector<Trainable> make_trainable(torch::nn::Module& model,
                                      const std::vector<std::string>& full) {
  std::set<std::string> whole;
  for (const std::string& scope : full) {
    if (scope == "all") {
      whole.insert({"llm", "projector", "vision"});
    } else if (scope == "llm" || scope == "projector" || scope == "vision") {
      whole.insert(scope);
    } else {
      throw Error(ErrorKind::kUsage, {.what = "unknown scope",
                                      .where = "full",
                                      .found = scope,
                                      .expected = "llm, projector, vision or all",
                                      .next = {}});
    }
  }
  std::map<const at::TensorImpl*, ops::ShadowPtr> shadows;
  for (const std::vector<ops::ShadowPtr>& of_adapter : shadows_of(model)) {
    for (const ops::ShadowPtr& shadow : of_adapter)
      shadows[shadow->master().unsafeGetTensorImpl()] = shadow;
  }
  const std::set<std::string> tables = embedding_tables(model);
  std::vector<Trainable> trainables;
  for (auto& parameter : model.named_parameters()) {
    at::Tensor tensor = parameter.value();
    const std::string& name = parameter.key();
    const std::string scope = scope_of(name);
    const bool adapter = name.find(kAdapterInfix) != std::string::npos;
    if (adapter && whole.count(scope) > 0) {
      throw Error(ErrorKind::kUsage, {.what = "an adapter is in a scope that is fully fine-tuned",
                                      .where = "full, lora.targets",
                                      .found = canonical_parameter(name),
                                      .expected = "a scope in full or in lora.targets, not in both",
                                      .next = {}});
    }
    const bool trained = adapter || whole.count(scope) > 0;
    if (trained && tensor.scalar_type() != at::kFloat) tensor.set_data(tensor.to(at::kFloat));
    tensor.set_requires_grad(trained);
    if (!trained) continue;
    const auto shadow = shadows.find(tensor.unsafeGetTensorImpl());
    trainables.push_back({canonical_parameter(name), scope, tensor,
                          shadow == shadows.end() ? ops::ShadowPtr() : shadow->second,
                          tables.contains(name)});
  }
  return trainables;
}

void merge_adapters(torch::nn::Module& model) {
  const at::NoGradGuard no_grad;
  for (LinearSite& site : linear_sites(model)) {
    if (site.layer->adapter() == nullptr) continue;
    at::Tensor& weight = site.layer->weight;
    weight.copy_(site.layer->adapter()->merged_oi(weight));
    if (const at::Tensor shift = site.layer->adapter()->bias_shift_o(); shift.defined()) {
      if (!site.layer->bias.defined())
        throw Error(ErrorKind::kInternal, "merge_adapters: " + site.name + " has no bias");
      site.layer->bias.add_(shift);
    }
    site.layer->set_adapter(nullptr);
  }
}

}  // namespace lft::lora
