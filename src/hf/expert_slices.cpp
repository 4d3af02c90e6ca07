#include "src/hf/expert_slices.h"

#include <ATen/Functions.h>

#include "src/hf/weights.h"

namespace lft::hf {
namespace {

/// The part of a tensor of all experts with the weight of one.
io::TensorInfo expert_slice(const io::TensorInfo& stored, int64_t expert) {
  io::TensorInfo slice = stored;
  slice.shape.erase(slice.shape.begin());
  slice.bytes = stored.bytes / static_cast<uint64_t>(stored.shape.front());
  slice.offset += static_cast<uint64_t>(expert) * slice.bytes;
  return slice;
}

}  // namespace

bool stores_transposed(const io::TensorInfo& stored, const std::vector<int64_t>& shape) {
  return stored.shape.size() == 3 && stored.shape[0] * stored.shape[1] != shape[0];
}

at::Tensor ExpertParts::whole(const at::Tensor& first) const {
  if (transposed) return first.t().contiguous();
  std::vector<at::Tensor> all = {first};
  for (size_t i = 1; i < parts.size(); ++i) {
    all.push_back(read_tensor(*parts[i].file, parts[i].info));
    refuse_non_finite(all.back(), parts[i].info.name, parts[i].file->path());
  }
  return all.size() == 1 ? first : at::cat(all);
}

ExpertParts expert_parts(const ModelDir& dir, const std::string& name,
                         const std::vector<int64_t>& shape, int64_t expert, int64_t experts) {
  ExpertParts of;
  const auto pieces = dir.expert_pieces.find(name);
  if (pieces == dir.expert_pieces.end()) {
    const ModelDir::Place& place = dir.tensors.at(name);
    of.parts = {{&dir.files[place.file], expert_slice(dir.info(place), expert)}};
    of.transposed = stores_transposed(dir.info(place), shape);
    return of;
  }
  const size_t count = pieces->second.size() / static_cast<size_t>(experts);
  for (size_t i = 0; i < count; ++i) {
    const ModelDir::Place& place =
        dir.tensors.at(pieces->second[static_cast<size_t>(expert) * count + i]);
    of.parts.push_back({&dir.files[place.file], dir.info(place)});
  }
  return of;
}

at::Tensor read_weight(const ModelDir& dir, const std::string& name,
                       const std::vector<int64_t>& shape) {
  if (!dir.config.family->names.is_expert_weight(name)) {
    const ModelDir::Place& place = dir.tensors.at(name);
    return read_tensor(dir.files[place.file], dir.info(place));
  }
  const int64_t experts = dir.config.text.experts.count;
  std::vector<at::Tensor> all;
  for (int64_t expert = 0; expert < experts; ++expert) {
    const ExpertParts of = expert_parts(dir, name, shape, expert, experts);
    all.push_back(of.whole(read_tensor(*of.parts[0].file, of.parts[0].info)));
  }
  return at::cat(all);
}

at::Tensor written_tensor(const family::ModelConfig& config, const std::string& name,
                          const at::Tensor& tensor) {
  if (!config.family->names.is_expert_weight(name)) return tensor;
  return tensor.unflatten(0, {config.text.experts.count, -1});
}

}  // namespace lft::hf
