// A checkpoint's tensors as a safetensors file, hashed while they are written, so that the file on
// disk can be compared with the source. For this folder and the incidents.
#pragma once
#include <ATen/core/Tensor.h>

#include <map>
#include <string>

namespace lft::checkpoint {

using TensorMap = std::map<std::string, at::Tensor>;

/// kNumeric with the first tensor that has a NaN or an infinity.
void refuse_non_finite_tensors(const TensorMap& tensors);
/// Writes and fsyncs the file. Returns the sha256 of its expected bytes.
std::string write_tensor_file(const std::string& path, const TensorMap& tensors);
TensorMap read_tensor_file(const std::string& path);

}  // namespace lft::checkpoint
