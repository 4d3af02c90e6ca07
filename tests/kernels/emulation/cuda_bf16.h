// __nv_bfloat16 and __half as storage with conversions.
#pragma once
#include "kernels/common/float_type.h"
#include "tests/kernels/emulation/cuda_runtime_api.h"

namespace lft::emulation {
template <FloatType kType>
struct Narrow {
  uint16_t bits;
  Narrow() = default;
  explicit Narrow(float value) { store_float(kType, &bits, 0, value); }
  explicit operator float() const { return load_float(kType, &bits, 0); }
};
}  // namespace lft::emulation

using __nv_bfloat16 = lft::emulation::Narrow<lft::FloatType::kBF16>;
using __half = lft::emulation::Narrow<lft::FloatType::kF16>;
