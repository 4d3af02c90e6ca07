// Where an op that writes float32 numbers also leaves a 16-bit copy of them.
#pragma once
#include "kernels/common/float_type.h"

namespace lft {

/// Element i of the copy is type(x_i * scale), the product rounded to float32 first. data: as many
/// elements as x has, aligned as their type demands; null: there is no copy.
struct ShadowPlace {
  void* data = nullptr;
  float scale = 1;
  FloatType type = FloatType::kBF16;  // or kF16
};

inline void write_shadow(const ShadowPlace& place, int64_t i, float x) {
  if (place.data != nullptr) store_float(place.type, place.data, i, x * place.scale);
}

}  // namespace lft
