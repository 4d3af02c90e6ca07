#include "src/hf/adapter/adapter_set.h"

#include <ATen/core/grad_mode.h>

#include "models/family/model.h"
#include "models/lora/inject.h"
#include "models/lora/inject_select.h"
#include "src/hf/adapter/adapter_load.h"
#include "src/hf/weights.h"

namespace lft::hf {

AdapterSet::AdapterSet(family::Model model)
    : model_(std::move(model)), parameters_(model_parameters(*model_)) {}

size_t AdapterSet::add(const AdapterDir& dir, at::ScalarType compute) {
  const at::NoGradGuard no_grad;
  attach(0);
  Tensors before;
  for (const auto& [name, parameter] : parameters_) before[name] = parameter.detach();
  load_adapter(model_, dir);
  lora::keep_shadows(*model_, compute);
  model_->eval();
  Adapter adapter;
  for (lora::LinearSite& site : lora::linear_sites(*model_)) {
    if (site.layer->adapter() != nullptr)
      adapter.layers.emplace_back(site.layer, site.layer->adapter());
  }
  for (const auto& [name, parameter] : parameters_) {
    if (parameter.is_alias_of(before.at(name))) continue;
    adapter.tensors[name] = parameter.detach();
    base_.emplace(name, before.at(name));
  }
  adapters_.push_back(std::move(adapter));
  attached_ = adapters_.size();
  return attached_;
}

void AdapterSet::detach() {
  if (attached_ == 0) return;
  const Adapter& adapter = adapters_[attached_ - 1];
  for (const auto& [layer, own] : adapter.layers) layers::Linear(layer)->set_adapter(nullptr);
  for (const auto& [name, own] : adapter.tensors) parameters_.at(name).set_data(base_.at(name));
  attached_ = 0;
}

void AdapterSet::attach(size_t number) {
  if (number == attached_) return;
  const at::NoGradGuard no_grad;
  detach();
  if (number == 0) return;
  const Adapter& adapter = adapters_.at(number - 1);
  for (const auto& [layer, own] : adapter.layers) layers::Linear(layer)->set_adapter(own);
  for (const auto& [name, own] : adapter.tensors) parameters_.at(name).set_data(own);
  attached_ = number;
}

}  // namespace lft::hf
