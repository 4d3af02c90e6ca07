// A table of vectors [rows, d], looked up by index. The result keeps the stored dtype, widened
// where compute_dtype() is float32.
#pragma once
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

namespace lft::layers {

class EmbeddingImpl : public torch::nn::Module {
 public:
  EmbeddingImpl(int64_t rows, int64_t size, at::TensorOptions options);
  /// int64 [...] -> [..., d]. Every id must be below the number of rows.
  at::Tensor forward(const at::Tensor& ids);
  at::Tensor weight;
};
TORCH_MODULE(Embedding);

}  // namespace lft::layers
