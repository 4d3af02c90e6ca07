// Which optimizer group updates which memory: every trainable has exactly one owner among the
// optimizers' groups. Compared by byte ranges, not by names.
#pragma once
#include <string>
#include <vector>

#include "src/train/optim/optimizer.h"

namespace lft::train {

struct Owner {
  std::string name,
      group;  // the owner's name for the tensor; with several optimizers the group is "2/base"
  double lr = 0;
  at::Tensor tensor;  // the tensor that the optimizer updates
};

/// The owner of each trainable, in their order. kUsage: a frozen tensor, one range with two owners,
/// an owner of a range that the model does not use, a tensor that is not FP32, a parameter of the
/// model that requires a gradient and has no owner.
std::vector<Owner> prove_ownership(const torch::nn::Module& model,
                                   const std::vector<lora::Trainable>& trainables,
                                   const std::vector<Optimizer*>& optimizers);

}  // namespace lft::train
