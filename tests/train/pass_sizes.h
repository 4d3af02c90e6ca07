// Counts the positions of every pass through the language model while it is observed, padding
// included. Contains no test.
#pragma once
#include <algorithm>
#include <cstdint>

#include "models/base/call.h"

namespace lft::test {

class PassSizes : public CallObserver {
 public:
  void before(const std::string& path, const torch::nn::Module&,
              const std::vector<at::Tensor>& inputs) override {
    if (path != "language_model") return;
    ++passes;
    largest =
        std::max(largest, inputs.at(0).size(0) * inputs.at(0).size(1));  // embeddings [b, t, d]
  }
  int64_t passes = 0, largest = 0;
};

}  // namespace lft::test
