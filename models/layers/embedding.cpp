#include "models/layers/embedding.h"

#include <ATen/ATen.h>

#include "models/ops/core/precision.h"

namespace lft::layers {

EmbeddingImpl::EmbeddingImpl(int64_t rows, int64_t size, at::TensorOptions options)
    : torch::nn::Module("Embedding") {
  weight = register_parameter("weight", at::empty({rows, size}, options), /*requires_grad=*/false);
}

at::Tensor EmbeddingImpl::forward(const at::Tensor& ids) {
  return at::embedding(weight, ids).to(ops::op_dtype(ops::Op::kEmbedding, weight.scalar_type()));
}

}  // namespace lft::layers
