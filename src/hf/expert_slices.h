// The weights of experts in a checkpoint: one tensor [experts, out, in], or [experts, in, out], for
// all experts of a layer, or tensors of each expert.
#pragma once
#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "src/hf/model_dir.h"

namespace lft::hf {

/// Whether the tensor is [experts, in, out], given the shape [experts * out, in] of the model's.
/// transformers reads a tensor whose sides are equal as [experts, out, in].
bool stores_transposed(const io::TensorInfo& stored, const std::vector<int64_t>& shape);

/// The stored parts of the weight [out, in] of one expert, one below the other.
struct ExpertParts {
  struct Part {
    const io::SafetensorsFile* file;
    io::TensorInfo info;  // two dimensions; a part of a tensor, or all of it
  };
  std::vector<Part> parts;
  bool transposed = false;  // [in, out]; then there is one part

  /// [out, in] as stored, given the first part as stored. Throws kInput for a value of another part
  /// that is not finite.
  at::Tensor whole(const at::Tensor& first) const;
};

/// Of the weight with this canonical name and the shape [experts * out, in].
ExpertParts expert_parts(const ModelDir& dir, const std::string& name,
                         const std::vector<int64_t>& shape, int64_t expert, int64_t experts);

/// The weight with this canonical name and shape, [rows, in], as stored in any of these layouts; or
/// another tensor, as it is stored. On the CPU.
at::Tensor read_weight(const ModelDir& dir, const std::string& name,
                       const std::vector<int64_t>& shape);

/// The tensor with this canonical name as it is written: experts as [experts, out, in], as
/// transformers saves them.
at::Tensor written_tensor(const family::ModelConfig& config, const std::string& name,
                          const at::Tensor& tensor);

}  // namespace lft::hf
