// Canonical names, which are those of the module tree, independent of the spelling in a checkpoint
// or in PEFT.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "models/family/scopes.h"

namespace lft::family {

/// A parameter that a checkpoint must contain.
struct TensorSpec {
  std::string name;  // canonical
  std::vector<int64_t> shape;
  int64_t experts = 0;  // rows of this many experts (layers/expert_linear.h); 0: of none

  /// The shape in a checkpoint: [experts, out, in], or [experts, in, out] if it is transposed.
  std::vector<int64_t> stored_shape(bool transposed) const;
};

/// Whether `name` is `head` or starts with it and a dot; `rest` is then the text after the dot.
bool strip(std::string_view name, std::string_view head, std::string_view* rest);
/// `head`, followed by a dot and `rest` unless that is empty.
std::string joined(std::string_view head, std::string_view rest);

}  // namespace lft::family
