#include <cmath>
#include <vector>

#include "kernels/swiglu/swiglu.h"

namespace lft {

void swiglu_ref(FloatType type, const void* gate, const void* up, void* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    const double g = load_float(type, gate, i), u = load_float(type, up, i);
    store_float(type, y, i, static_cast<float>(g / (1 + std::exp(-g)) * u));
  }
}

void swiglu_dropout_ref(FloatType type, const void* gate, const void* up, void* y, void* dropped,
                        int64_t n, const DropoutArgs& args) {
  std::vector<uint8_t> product(static_cast<size_t>(n * float_type_size(type)));
  swiglu_ref(type, gate, up, product.data(), n);
  dropout_ref(type, product.data(), dropped, n, args);
  if (y != nullptr) std::memcpy(y, product.data(), product.size());
}

void swiglu_backward_ref(FloatType type, const void* dy, const void* gate, const void* up,
                         void* dgate, void* dup, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    const double d = load_float(type, dy, i), g = load_float(type, gate, i),
                 u = load_float(type, up, i), s = 1 / (1 + std::exp(-g));
    store_float(type, dgate, i, static_cast<float>(d * u * s * (1 + g * (1 - s))));
    store_float(type, dup, i, static_cast<float>(d * g * s));
  }
}

}  // namespace lft
