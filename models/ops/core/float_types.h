// Maps dtypes of LibTorch to the float types of the kernels.
#pragma once
#include <c10/core/ScalarType.h>

#include <optional>

#include "kernels/common/float_type.h"

namespace lft::ops {

inline std::optional<FloatType> float_type(at::ScalarType dtype) {
  if (dtype == at::kFloat) return FloatType::kF32;
  if (dtype == at::kBFloat16) return FloatType::kBF16;
  if (dtype == at::kHalf) return FloatType::kF16;
  return std::nullopt;
}

}  // namespace lft::ops
