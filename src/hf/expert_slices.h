// The weights of experts in a checkpoint: one tensor [experts, out, in], or [experts, in, out], for
// all experts of a layer.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "models/family/family.h"
#include "src/io/safetensors.h"

namespace lft::hf {

/// The part of the tensor of one expert; its shape has two dimensions.
io::TensorInfo expert_slice(const io::TensorInfo& stored, int64_t expert);

/// Whether the tensor is [experts, in, out], given the shape [experts * out, in] of the model's.
/// transformers reads a tensor whose sides are equal as [experts, out, in].
bool stores_transposed(const io::TensorInfo& stored, const std::vector<int64_t>& shape);

/// The tensor with this canonical name as it is written: experts as [experts, out, in], as
/// transformers saves them.
at::Tensor written_tensor(const family::ModelConfig& config, const std::string& name,
                          const at::Tensor& tensor);

}  // namespace lft::hf
