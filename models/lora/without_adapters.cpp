#include "models/lora/without_adapters.h"

#include "models/lora/inject_select.h"

namespace lft::lora {

WithoutAdapters::WithoutAdapters(torch::nn::Module& model) : sites_(linear_sites(model)) {
  for (LinearSite& site : sites_) {
    adapters_.push_back(site.layer->adapter());
    if (adapters_.back() != nullptr) site.layer->set_adapter(adapters_.back()->at_start());
  }
}

WithoutAdapters::~WithoutAdapters() {
  for (size_t i = 0; i < sites_.size(); ++i) {
    if (adapters_[i] != nullptr) sites_[i].layer->set_adapter(adapters_[i]);
  }
}

}  // namespace lft::lora
