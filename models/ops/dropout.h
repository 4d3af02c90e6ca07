// Dropout whose mask is a pure function of (seed, step, micro-batch, module path, element), so that nothing of it is kept.
#pragma once
#include <ATen/core/Tensor.h>

#include <string>

#include "models/ops/loops.h"

namespace lft {

/// The mask of the module `path` at dropout_position() for drop probability p in [0, 1). Outside any DropoutGuard, or for p = 0, it keeps
/// all. p is rounded to 1/65536, and kept elements are scaled by the inverse of what that keeps.
loops::DropoutMask dropout_mask(double p, const std::string& path);

/// x * mask * scale, without a graph. Element i is x's i-th in row-major order. A mask that keeps all returns x itself.
at::Tensor dropout(const at::Tensor& x, const loops::DropoutMask& mask);
/// y += x * mask * scale, in place. x and y: same shape and dtype.
void add_dropout(at::Tensor& y, const at::Tensor& x, const loops::DropoutMask& mask);

}  // namespace lft
