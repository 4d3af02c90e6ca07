#include <cmath>

#include "kernels/quick_gelu/quick_gelu.h"

namespace lft {
namespace {
double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
}  // namespace

void quick_gelu_ref(FloatType type, const void* x, void* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    const double z = load_float(type, x, i);
    store_float(type, y, i, static_cast<float>(z * sigmoid(kQuickGelu * z)));
  }
}

void quick_gelu_backward_ref(FloatType type, const void* dy, const void* x, void* dx, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    const double d = load_float(type, dy, i), z = load_float(type, x, i),
                 s = sigmoid(kQuickGelu * z);
    store_float(type, dx, i, static_cast<float>(d * s * (1 + kQuickGelu * z * (1 - s))));
  }
}

}  // namespace lft
