// The base alone, for as long as it is looked at.
#pragma once
#include <memory>
#include <vector>

#include "models/lora/inject.h"

namespace lft::lora {

/// Takes every adapter out of its layer for its lifetime; one that changed the weight under it
/// makes room for one as it started.
class WithoutAdapters {
 public:
  explicit WithoutAdapters(torch::nn::Module& model);
  ~WithoutAdapters();
  WithoutAdapters(const WithoutAdapters&) = delete;

 private:
  std::vector<LinearSite> sites_;
  std::vector<std::shared_ptr<layers::LinearAdapter>> adapters_;
};

}  // namespace lft::lora
