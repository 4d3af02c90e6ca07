#include <cmath>
#include <vector>

#include "kernels/swiglu/swiglu.h"

namespace lft {

namespace {

float product(double gate, double up) {
  return static_cast<float>(gate / (1 + std::exp(-gate)) * up);
}

}  // namespace

void swiglu_ref(const SwigluInput& in, void* y) {
  for (int64_t i = 0; i < in.n; ++i) {
    const double g = load_float(in.type, in.gate, i), u = load_float(in.type, in.up, i);
    store_float(in.type, y, i, product(g, u));
  }
}

void swiglu_dropout_ref(const SwigluInput& in, void* y, void* dropped, const DropoutArgs& args) {
  std::vector<uint8_t> product(static_cast<size_t>(in.n * float_type_size(in.type)));
  swiglu_ref(in, product.data());
  dropout_ref(in.type, product.data(), dropped, in.n, args);
  if (y != nullptr) std::memcpy(y, product.data(), product.size());
}

void swiglu_backward_ref(const SwigluInput& in, const void* dy, void* dgate, void* dup, void* y) {
  for (int64_t i = 0; i < in.n; ++i) {
    const double d = load_float(in.type, dy, i), g = load_float(in.type, in.gate, i),
                 u = load_float(in.type, in.up, i), s = 1 / (1 + std::exp(-g));
    store_float(in.type, dgate, i, static_cast<float>(d * u * s * (1 + g * (1 - s))));
    store_float(in.type, dup, i, static_cast<float>(d * g * s));
    if (y != nullptr) store_float(in.type, y, i, product(g, u));
  }
}

}  // namespace lft
