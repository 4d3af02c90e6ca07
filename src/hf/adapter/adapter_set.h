// Several adapters of one model in memory. The base is there once, and one adapter at a time is
// attached to it.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "models/family/family.h"
#include "models/layers/linear.h"
#include "src/hf/adapter/adapter.h"

namespace lft::hf {

class AdapterSet {
 public:
  /// The model must outlive it and have no adapter.
  explicit AdapterSet(family::Model model);
  /// Loads an adapter for products in `compute`, and returns its number, from 1. Throws as
  /// load_adapter() does.
  size_t add(const AdapterDir& dir, at::ScalarType compute);
  /// The model then computes with this adapter; 0: the base alone.
  void attach(size_t number);

 private:
  /// The tensors of the base that an adapter replaces: fully fine-tuned ones and an embedding with
  /// LoRA.
  using Tensors = std::map<std::string, at::Tensor>;
  struct Adapter {
    std::vector<std::pair<layers::Linear, std::shared_ptr<layers::LinearAdapter>>> layers;
    Tensors tensors;
  };
  void detach();

  family::Model model_;
  Tensors parameters_;  // the model's own
  Tensors base_;        // values of the parameters that some adapter replaces
  std::vector<Adapter> adapters_;
  size_t attached_ = 0;
};

}  // namespace lft::hf
