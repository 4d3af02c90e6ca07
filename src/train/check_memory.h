// What a run needs of the machine's memory: counted for the tensors that stay, measured for a micro-batch.
#pragma once
#include <c10/core/Device.h>

#include <string>
#include <vector>

#include "models/lora/inject.h"

namespace lft {

/// Highest use of the device's memory since it was made: of the process on a CPU, of LibTorch's allocator on a GPU.
class PeakMemory {
 public:
  explicit PeakMemory(at::Device device);
  double bytes() const;

 private:
  at::Device device_;
};

/// Bytes. `free` is what a run could take in all, what this process holds already included.
struct MemoryPlan {
  double frozen = 0, trainables = 0, gradients = 0, moments = 0, peak = 0, free = 0;
};
/// `peak`: measured over a forward and backward pass; Adam's moments, untouched by then on a CPU, are added here.
MemoryPlan plan_memory(torch::nn::Module& model, const std::vector<Trainable>& trainables, at::Device device, double peak);
/// Lines to print; `rows` and `tokens` say what was measured.
std::vector<std::string> describe_memory(const MemoryPlan& plan, size_t rows, size_t tokens);

}  // namespace lft
