// Drives NF4 storage for test_nf4.py: peer_driver nf4 IN OUT. IN: float32 [o, i] tensors by key;
// OUT for each K: codes.K, scale_codes.K, scale_absmax.K, scale_offset.K, and the dequantised
// weight as float32.K and bfloat16.K.
#include <ATen/Functions.h>

#include "models/ops/weight/nf4.h"
#include "peers/driver.h"

namespace lft::test {
Tensors drive_nf4(const Tensors& in) {
  Tensors out;
  for (const auto& [name, weight] : in) {
    const auto storage = ops::quantize_nf4(weight, at::kCPU);
    out["codes." + name] = storage->codes;
    out["scale_codes." + name] = storage->scale_codes;
    out["scale_absmax." + name] = storage->scale_absmax;
    out["scale_offset." + name] = at::full({1}, storage->scale_offset, at::kFloat);
    out["float32." + name] = storage->dense(at::kFloat);
    out["bfloat16." + name] = storage->dense(at::kBFloat16);
  }
  return out;
}

}  // namespace lft::test
