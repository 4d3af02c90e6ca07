// Drives FP8 storage for test_fp8.py: fp8_driver IN OUT. IN: tensors [t, i] and [o, i] as "x.K" and
// "w.K", bfloat16 or float32; OUT for each K, codes as bytes: codes.K and scales.K of W,
// transposed_codes.K and transposed_scales.K, x_codes.K and x_scales.K, and the products y.K = x
// W^T and dx.K = y W in bfloat16.
#include <ATen/Functions.h>

#include <cstdio>
#include <map>
#include <string>

#include "models/ops/weight/fp8.h"
#include "src/base/errors.h"
#include "src/hf/weights.h"

using namespace lft::hf;
using namespace lft::io;
using namespace lft::ops;

int main(int argc, char** argv) {
  try {
    if (argc != 3) throw lft::Error(lft::ErrorKind::kUsage, "fp8_driver IN OUT");
    const lft::io::SafetensorsFile file(argv[1]);
    std::map<std::string, at::Tensor> out;
    const auto put = [&](const std::string& prefix, const std::string& name,
                         const lft::ops::Fp8Matrix& matrix) {
      out[prefix + "codes." + name] = matrix.codes_mk.view(at::kByte);
      out[prefix + "scales." + name] = matrix.scales_m1;
    };
    for (const auto& [key, info] : file.tensors()) {
      if (!key.starts_with("w.")) continue;
      const std::string name = key.substr(2);
      const at::Tensor x = lft::hf::read_tensor(file, file.info("x." + name));
      const auto storage = lft::ops::quantize_fp8(lft::hf::read_tensor(file, info), at::kCPU);
      put("", name, storage->weight_oi);
      put("transposed_", name, storage->transposed_io);
      put("x_", name, lft::ops::quantize_rows(x));
      const at::Tensor y = storage->product(x.to(at::kBFloat16), at::Tensor());
      out["y." + name] = y;
      out["dx." + name] = storage->product_backward(y);
    }
    lft::hf::write_tensors(argv[2], out);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
