// A checkpoint's tensors as a safetensors file, hashed as they are written: what the disk holds is
// compared with what was meant. For this folder and the incidents.
#pragma once
#include <ATen/core/Tensor.h>

#include <map>
#include <string>

namespace lft::checkpoint {

using TensorMap = std::map<std::string, at::Tensor>;

/// kNumeric naming the first tensor with a NaN or an infinity.
void refuse_non_finite_tensors(const TensorMap& tensors);
/// Writes and fsyncs the file. Returns the sha256 of the bytes that it should hold.
std::string write_tensor_file(const std::string& path, const TensorMap& tensors);
TensorMap read_tensor_file(const std::string& path);

}  // namespace lft::checkpoint
