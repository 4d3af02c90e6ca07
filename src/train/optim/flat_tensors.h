// One tensor per trainable, all in one buffer.
#pragma once
#include <string>
#include <vector>

#include "models/lora/inject.h"

namespace lft::train {

/// The buffer contains one scope after another, in each the lora_A first: those of layers with a
/// common input are adjacent, so that one product computes them all (stacked_view() in
/// models/ops/weight/masters.h). Parts start at multiples of 16 bytes.
struct FlatTensors {
  at::Tensor flat;                // [elements]; undefined: none
  std::vector<at::Tensor> parts;  // with the trainables' shapes; each has its own version counter
  struct Range {
    std::string scope;
    int64_t first = 0, count = 0;
  };
  std::vector<Range> scopes;

  /// Empty for a scope without parts.
  at::Tensor of_scope(const std::string& scope) const;
};

/// Zeros on the first trainable's device. Empty if there are no trainables.
FlatTensors make_flat(const std::vector<lora::Trainable>& trainables, at::ScalarType dtype);

}  // namespace lft::train
