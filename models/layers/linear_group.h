// Linear layers with the same input: each runs through call(), but they share work
// (models/ops/linear/shared_input.h).
#pragma once
#include <memory>
#include <vector>

#include "models/layers/linear.h"
#include "models/ops/linear/shared_input.h"

namespace lft::layers {

class LinearGroup {
 public:
  /// For one forward pass of `layers` on x, in any order, each at most once.
  LinearGroup(std::vector<Linear> layers, const ops::Normed& x);

  /// A layer in the form that call() accepts.
  class Member {
   public:
    Member(const LinearGroup& group, size_t number) : group_(group), number_(number) {}
    const torch::nn::Module& operator*() const { return *group_.layers_[number_]; }
    Member* operator->() { return this; }
    at::Tensor forward(const at::Tensor& x);

   private:
    const LinearGroup& group_;
    size_t number_;
  };
  Member operator[](size_t number) const { return {*this, number}; }

 private:
  std::vector<Linear> layers_;
  std::shared_ptr<ops::SharedInput> shared_;  // null: no work is shared
};

}  // namespace lft::layers
