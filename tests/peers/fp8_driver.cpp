// Drives FP8 storage for test_fp8.py: peer_driver fp8 IN OUT. IN: tensors [t, i] and [o, i] as
// "x.K" and "w.K", bfloat16 or float32; OUT for each K, codes as bytes: codes.K and scales.K of W,
// transposed_codes.K and transposed_scales.K, x_codes.K and x_scales.K, and the products
// y.K = x W^T and dx.K = y W in bfloat16.
#include <ATen/Functions.h>

#include "models/ops/weight/fp8.h"
#include "peers/driver.h"

namespace lft::test {
namespace {

using namespace lft::ops;

void put(Tensors& out, const std::string& prefix, const std::string& name,
         const Fp8Matrix& matrix) {
  out[prefix + "codes." + name] = matrix.codes_mk.view(at::kByte);
  out[prefix + "scales." + name] = matrix.scales_m1;
}

}  // namespace

Tensors drive_fp8(const Tensors& in) {
  Tensors out;
  for (const auto& [key, weight] : in) {
    if (!key.starts_with("w.")) continue;
    const std::string name = key.substr(2);
    const at::Tensor& x = in.at("x." + name);
    const auto storage = quantize_fp8(weight, at::kCPU);
    put(out, "", name, storage->weight_oi);
    put(out, "transposed_", name, storage->transposed_io);
    put(out, "x_", name, quantize_rows(x));
    const at::Tensor y = storage->product(x.to(at::kBFloat16), at::Tensor());
    out["y." + name] = y;
    out["dx." + name] = storage->product_backward(y);
  }
  return out;
}

}  // namespace lft::test
