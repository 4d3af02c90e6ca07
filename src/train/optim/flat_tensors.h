// One tensor for each of many trainables, all in one buffer.
#pragma once
#include <string>
#include <vector>

#include "models/lora/inject.h"

namespace lft::train {

/// The buffer holds scope after scope, and of a scope every lora_A first: those of layers that
/// share their input are stacked, so that one product serves them all (stacked_view()
/// in models/ops/weight/masters.h). Parts start at multiples of 16 bytes.
struct FlatTensors {
  at::Tensor flat;                // [elements]; undefined: there is none
  std::vector<at::Tensor> parts;  // of the trainables' shapes; each counts its own versions
  struct Range {
    std::string scope;
    int64_t first = 0, count = 0;
  };
  std::vector<Range> scopes;

  /// Empty for a scope without a part.
  at::Tensor of_scope(const std::string& scope) const;
};

/// Zeros where the first trainable is. Empty for none.
FlatTensors make_flat(const std::vector<lora::Trainable>& trainables, at::ScalarType dtype);

}  // namespace lft::train
