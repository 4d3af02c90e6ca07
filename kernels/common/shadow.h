// The 16-bit copy that an op writes in addition to its float32 output.
#pragma once
#include "kernels/common/float_type.h"

namespace lft {

/// Element i of the copy is type(x_i * scale); the product is rounded to float32 first. data: as
/// many elements as x, aligned for their type; null: no copy.
struct ShadowPlace {
  void* data = nullptr;
  float scale = 1;
  FloatType type = FloatType::kBF16;  // or kF16
};

inline void write_shadow(const ShadowPlace& place, int64_t i, float x) {
  if (place.data != nullptr) store_float(place.type, place.data, i, x * place.scale);
}

}  // namespace lft
