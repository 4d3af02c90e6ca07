#include "models/layers/embedding.h"

#include <ATen/ATen.h>

#include "models/ops/core/precision.h"

namespace lft::layers {

EmbeddingImpl::EmbeddingImpl(int64_t rows, int64_t size, at::TensorOptions options, double scale)
    : torch::nn::Module("Embedding"), scale_(scale) {
  weight = register_parameter("weight", at::empty({rows, size}, options), /*requires_grad=*/false);
}

at::Tensor EmbeddingImpl::forward(const at::Tensor& ids) {
  const at::ScalarType type = ops::op_dtype(ops::Op::kEmbedding, weight.scalar_type());
  const at::Tensor found = at::embedding(weight, ids).to(type);
  if (scale_ == 1) return found;
  return found * at::scalar_tensor(scale_, at::TensorOptions(type)).item();
}

}  // namespace lft::layers
