#include "src/hf/file_weight.h"

#include <ATen/ops/empty.h>

#include <algorithm>

#include "src/hf/fill_weights.h"

namespace lft::hf {

at::Tensor ReadBuffers::take(int64_t numel, at::TensorOptions options) {
  const auto fits = [&](const at::Tensor& buffer) {
    return buffer.storage().use_count() == 1 && buffer.numel() >= numel &&
           buffer.dtype() == options.dtype();
  };
  auto found = std::ranges::find_if(buffers_, fits);
  if (found == buffers_.end()) {
    std::erase_if(buffers_,
                  [](const at::Tensor& buffer) { return buffer.storage().use_count() == 1; });
    found = buffers_.insert(buffers_.end(), at::empty({numel}, options));
  }
  return found->narrow(0, 0, numel);
}

FileWeight::FileWeight(std::shared_ptr<const ModelDir> dir, const std::string& name,
                       at::ScalarType dtype, at::Device device,
                       std::shared_ptr<ReadBuffers> buffers)
    : dir_(std::move(dir)),
      name_(name),
      options_(at::TensorOptions(dtype).device(device)),
      buffers_(std::move(buffers)) {
  const std::vector<int64_t>& shape = dir_->info(dir_->tensors.at(name_)).shape;
  out = shape.at(0);
  in = shape.at(1);
}

c10::intrusive_ptr<ops::CodedWeight> FileWeight::with(const std::vector<at::Tensor>&) const {
  return c10::make_intrusive<FileWeight>(*this);
}

at::Tensor FileWeight::dense(at::ScalarType dtype) const {
  const ModelDir::Place& place = dir_->tensors.at(name_);
  const at::Tensor weight = buffers_->take(out * in, options_).view({out, in});
  fill_weights({{&dir_->files[place.file], &dir_->info(place), name_, weight}});
  return weight.to(dtype);
}

}  // namespace lft::hf
