// Who steps which memory: every trainable has exactly one owner among the groups of the optimizers.
// Ranges of bytes decide, names do not.
#pragma once
#include <string>
#include <vector>

#include "src/train/optim/optimizer.h"

namespace lft::train {

struct Owner {
  std::string name,
      group;  // the owner's name of the tensor; with several optimizers the group is "2/base"
  double lr = 0;
  at::Tensor tensor;  // what the optimizer steps
};

/// The owner of each trainable, in their order. kUsage: a frozen tensor, one range with two owners,
/// an owner of a range that the model does not use, a tensor that is not FP32, a parameter of the
/// model that requires a gradient and has no owner.
std::vector<Owner> prove_ownership(const torch::nn::Module& model,
                                   const std::vector<lora::Trainable>& trainables,
                                   const std::vector<Optimizer*>& optimizers);

}  // namespace lft::train
