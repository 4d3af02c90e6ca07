// The factors of a low-rank update in products. Private to the ops of linear layers.
#pragma once
#include "models/ops/linear/linear.h"

namespace lft::ops {

/// A and B in the dtype of products; B includes a part of the scale (masters.h).
inline at::Tensor low_a(const LowRank& update, at::ScalarType dtype) {
  return update.a_shadow ? update.a_shadow->value(dtype) : low_copy(update.a_ri, 1, dtype);
}
inline at::Tensor low_b(const LowRank& update, at::ScalarType dtype) {
  return update.b_shadow ? update.b_shadow->value(dtype)
                         : low_copy(update.b_or, update.scale, dtype);
}
/// The remaining scale for a product with low_b().
inline double scale_left(const LowRank& update, at::ScalarType dtype) {
  return dtype == at::kBFloat16 ? 1 : update.scale;
}

}  // namespace lft::ops
