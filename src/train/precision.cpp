#include "src/train/precision.h"

#include "kernels/common/error.h"
#include "src/train/device.h"

namespace lft {

Precision choose_precision(const std::string& compute, at::Device device) {
  std::string why;
  if (compute == "auto") {
    const bool fast = has_fast_bf16(device, &why);
    return {.compute = fast ? at::kBFloat16 : at::kFloat, .reason = "auto: " + why, .notice = {}};
  }
  const at::ScalarType type = compute_type(compute);
  if (type == at::kHalf) {
    return {.compute = at::kFloat,
            .reason = "fp16 needs loss scaling",
            .notice = "precision.compute: fp16 needs loss scaling; computing in fp32"};
  }
  Precision precision{.compute = type, .reason = "as the recipe says", .notice = {}};
  if (type == at::kBFloat16 && !has_fast_bf16(device, &why)) precision.notice = "precision.compute: bf16 will be slow here: " + why;
  return precision;
}

at::ScalarType compute_type(const std::string& name) {
  if (name == "fp32") return at::kFloat;
  if (name == "bf16") return at::kBFloat16;
  if (name == "fp16") return at::kHalf;
  throw Error(ErrorKind::kUsage, {.what = "unknown dtype", .where = {}, .found = name, .expected = "fp32, bf16 or fp16", .next = {}});
}

std::string compute_name(at::ScalarType type) { return type == at::kBFloat16 ? "bf16" : type == at::kHalf ? "fp16" : "fp32"; }

}  // namespace lft
