#include "models/ops/attention.h"

#include <ATen/ATen.h>

#include <optional>

#include "models/layers/dims.h"
#include "models/ops/gemm.h"

namespace lft {

at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& mask, bool causal) {
  expect_dims(q, "q", {{"b"}, {"h"}, {"t"}, {"e"}});
  expect_dims(k, "k", {{"b", q.size(0)}, {"h", q.size(1)}, {"s"}, {"e", q.size(3)}});
  expect_dims(v, "v", {{"b", q.size(0)}, {"h", q.size(1)}, {"s", k.size(2)}, {"e", q.size(3)}});
  const std::optional<at::Tensor> seen = mask.defined() ? std::make_optional(mask) : std::nullopt;
  if (!widens_products(q)) return at::scaled_dot_product_attention(q, k, v, seen, /*dropout_p=*/0.0, causal);
  return at::scaled_dot_product_attention(q.to(at::kFloat), k.to(at::kFloat), v.to(at::kFloat), seen, /*dropout_p=*/0.0, causal)
      .to(q.scalar_type());
}

}  // namespace lft
