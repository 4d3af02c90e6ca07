// An embedding table [rows, d]. The result has the stored dtype, or float32 if compute_dtype() is
// float32.
#pragma once
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

namespace lft::layers {

class EmbeddingImpl : public torch::nn::Module {
 public:
  /// `scale`: rounded to the result's dtype and multiplied with every vector, as in Gemma.
  EmbeddingImpl(int64_t rows, int64_t size, at::TensorOptions options, double scale = 1);
  /// int64 [...] -> [..., d]. Every id must be below the number of rows.
  at::Tensor forward(const at::Tensor& ids);
  at::Tensor weight;

 private:
  double scale_;
};
TORCH_MODULE(Embedding);

}  // namespace lft::layers
