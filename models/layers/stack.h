// A list of equal modules named "0", "1", ...: the `layers` of a transformer.
#pragma once
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <string>
#include <vector>

namespace lft::layers {

template <class Holder>
class StackImpl : public torch::nn::Module {
 public:
  void push_back(Holder layer) {
    layers_.push_back(register_module(std::to_string(layers_.size()), std::move(layer)));
  }
  int64_t size() const { return static_cast<int64_t>(layers_.size()); }
  const Holder& operator[](int64_t index) const { return layers_[static_cast<size_t>(index)]; }

 private:
  std::vector<Holder> layers_;
};
template <class Holder>
using Stack = std::shared_ptr<StackImpl<Holder>>;

}  // namespace lft::layers
