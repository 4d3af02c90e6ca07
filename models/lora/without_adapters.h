// The model without its adapters, for a scope.
#pragma once
#include <memory>
#include <vector>

#include "models/lora/inject.h"

namespace lft::lora {

/// Removes every adapter for its lifetime. An adapter that changed the weight of its layer is
/// replaced by one in its initial state.
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
