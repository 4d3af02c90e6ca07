#include "src/train/machine/precision.h"

#include "kernels/common/error.h"

namespace lft::train {
namespace {

constexpr int kBf16Capability = 80;      // the first GPUs with bf16 arithmetic
constexpr int kFastFp16Capability = 70;  // the first with tensor cores
constexpr int kFp16Capability = 53;      // the first with fp16 arithmetic
constexpr int kFlashCapability = 80;  // LibTorch's flash attention: from here on, heads of at most
constexpr int64_t kFlashHeadDim = 256;

std::string capability_text(const DeviceFacts& facts) {
  if (facts.capability == 0) return "a GPU of unknown compute capability";
  return "compute capability " + std::to_string(facts.capability / 10) + "." +
         std::to_string(facts.capability % 10);
}

Precision choose_by_device(const DeviceFacts& facts) {
  if (!facts.gpu) {
    if (!facts.bf16_unit.empty())
      return {at::kBFloat16, "auto: this CPU has " + facts.bf16_unit, {}};
    return {at::kFloat,
            "auto: this CPU has neither avx512_bf16 nor amx_bf16; and not fp16, whose products a "
            "CPU computes in fp32 and rounds",
            {}};
  }
  if (facts.capability >= kBf16Capability)
    return {at::kBFloat16, "auto: " + capability_text(facts) + " has bf16", {}};
  if (facts.capability >= kFastFp16Capability) {
    return {at::kHalf,
            "auto: " + capability_text(facts) + " lacks bf16 and has fast fp16; with loss scaling",
            {}};
  }
  return {at::kFloat, "auto: " + capability_text(facts) + " has neither bf16 nor fast fp16", {}};
}

/// Why the device does not support the dtype; empty: it does.
std::string lacks(at::ScalarType type, const DeviceFacts& facts) {
  if (!facts.gpu || type == at::kFloat) return "";
  const bool has = facts.capability >= (type == at::kBFloat16 ? kBf16Capability : kFp16Capability);
  return has ? "" : capability_text(facts) + " lacks " + compute_name(type);
}

/// Why the dtype is no faster than fp32; empty: it is.
std::string slow(at::ScalarType type, const DeviceFacts& facts) {
  if (type == at::kHalf && !facts.gpu) return "a CPU computes its products in fp32 and rounds them";
  if (type == at::kHalf && facts.capability < kFastFp16Capability)
    return capability_text(facts) + " has no fast fp16 products";
  if (type == at::kBFloat16 && !facts.gpu && facts.bf16_unit.empty())
    return "this CPU has neither avx512_bf16 nor amx_bf16";
  return "";
}

}  // namespace

DtypeSupport dtype_support(at::ScalarType type, const DeviceFacts& facts) {
  if (const std::string why = lacks(type, facts); !why.empty())
    return {.has = false, .fast = false, .why = why};
  const std::string why = slow(type, facts);
  return {.has = true, .fast = why.empty(), .why = why};
}

Precision choose_precision(recipe::Choice<recipe::ComputeDtype> asked, const DeviceFacts& facts,
                           const std::string& field) {
  if (asked == recipe::ComputeDtype::kAuto) return choose_by_device(facts);
  const at::ScalarType type = compute_type(asked.word());
  if (const std::string why = lacks(type, facts); !why.empty()) {
    return {at::kFloat, asked.word() + " is not available: " + why,
            field + ": " + why + "; computing in fp32"};
  }
  Precision precision{type, "as asked", {}};
  if (type == at::kHalf) precision.reason += ", with loss scaling";
  if (const std::string why = slow(type, facts); !why.empty())
    precision.notice = field + ": " + asked.word() + " will be slow here: " + why;
  return precision;
}

std::string packing_fault(at::ScalarType compute, int64_t head_dim, const DeviceFacts& facts) {
  if (!facts.gpu || compute == at::kFloat) return "";
  if (facts.capability < kFlashCapability)
    return capability_text(facts) + " has no flash attention";
  if (head_dim > kFlashHeadDim)
    return "heads of " + std::to_string(head_dim) + " are too wide for flash attention";
  return "";
}

at::ScalarType compute_type(const std::string& name) {
  if (name == "fp32") return at::kFloat;
  if (name == "bf16") return at::kBFloat16;
  if (name == "fp16") return at::kHalf;
  refuse(ErrorKind::kUsage, "unknown dtype", {}, name, "fp32, bf16 or fp16");
}

std::string compute_name(at::ScalarType type) {
  return type == at::kBFloat16 ? "bf16" : type == at::kHalf ? "fp16" : "fp32";
}

}  // namespace lft::train
