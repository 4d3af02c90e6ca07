// Drives NF4 storage for test_nf4.py: nf4_driver IN OUT. IN: float32 [o, i] tensors by key; OUT for
// each K: codes.K, scale_codes.K, scale_absmax.K, scale_offset.K, and what they stand for as
// float32.K and bfloat16.K.
#include <ATen/Functions.h>

#include <cstdio>
#include <map>
#include <string>

#include "models/ops/weight/nf4.h"
#include "src/base/errors.h"
#include "src/hf/weights.h"

using namespace lft::hf;
using namespace lft::io;
using namespace lft::ops;

int main(int argc, char** argv) {
  try {
    if (argc != 3) throw lft::Error(lft::ErrorKind::kUsage, "nf4_driver IN OUT");
    const lft::io::SafetensorsFile file(argv[1]);
    std::map<std::string, at::Tensor> out;
    for (const auto& [name, info] : file.tensors()) {
      const auto storage = lft::ops::quantize_nf4(lft::hf::read_tensor(file, info), at::kCPU);
      out["codes." + name] = storage->codes;
      out["scale_codes." + name] = storage->scale_codes;
      out["scale_absmax." + name] = storage->scale_absmax;
      out["scale_offset." + name] = at::full({1}, storage->scale_offset, at::kFloat);
      out["float32." + name] = storage->dense(at::kFloat);
      out["bfloat16." + name] = storage->dense(at::kBFloat16);
    }
    lft::hf::write_tensors(argv[2], out);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
