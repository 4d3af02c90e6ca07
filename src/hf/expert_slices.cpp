#include "src/hf/expert_slices.h"

namespace lft::hf {

io::TensorInfo expert_slice(const io::TensorInfo& stored, int64_t expert) {
  io::TensorInfo slice = stored;
  slice.shape.erase(slice.shape.begin());
  slice.bytes = stored.bytes / static_cast<uint64_t>(stored.shape.front());
  slice.offset += static_cast<uint64_t>(expert) * slice.bytes;
  return slice;
}

bool stores_transposed(const io::TensorInfo& stored, const std::vector<int64_t>& shape) {
  return stored.shape.size() == 3 && stored.shape[0] * stored.shape[1] != shape[0];
}

at::Tensor written_tensor(const family::ModelConfig& config, const std::string& name,
                          const at::Tensor& tensor) {
  if (!config.family->names.is_expert_weight(name)) return tensor;
  return tensor.unflatten(0, {config.text.experts.count, -1});
}

}  // namespace lft::hf
