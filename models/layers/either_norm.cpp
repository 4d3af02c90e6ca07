#include "models/layers/either_norm.h"

#include "models/base/call.h"

namespace lft::layers {

void EitherNorm::make(torch::nn::Module& parent, const char* name, bool is_rms, int64_t size,
                      double eps, at::TensorOptions options) {
  if (is_rms) {
    rms = parent.register_module(name, RmsNorm(size, eps, options));
  } else {
    layer = parent.register_module(name, LayerNorm(size, eps, options));
  }
}

at::Tensor EitherNorm::run(const char* name, const at::Tensor& x) const {
  return rms ? call(name, rms, x) : call(name, layer, x);
}

}  // namespace lft::layers
