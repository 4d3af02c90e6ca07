// The compute dtype of a run: every row of (requested, device), without the devices.
#include <gtest/gtest.h>

#include "src/train/machine/precision.h"
#include "support/expect_error.h"

namespace lft::test::precision_test {
using namespace lft::train;
namespace {

DeviceFacts gpu(int capability) { return {.gpu = true, .capability = capability, .bf16_unit = {}}; }
DeviceFacts cpu(const std::string& unit) {
  return {.gpu = false, .capability = 0, .bf16_unit = unit};
}

struct Row {
  const char* asked;
  DeviceFacts device;
  at::ScalarType compute;
  const char* reason;  // a piece of it
  const char* notice;  // a piece of it; empty: no notice
};

TEST(Precision, EveryRow) {
  const Row rows[] = {
      {"auto", gpu(90), at::kBFloat16, "auto: compute capability 9.0 has bf16", ""},
      {"auto", gpu(80), at::kBFloat16, "8.0 has bf16", ""},
      {"auto", gpu(75), at::kHalf, "7.5 lacks bf16 and has fast fp16; with loss scaling", ""},
      {"auto", gpu(70), at::kHalf, "7.0 lacks bf16", ""},
      {"auto", gpu(61), at::kFloat, "6.1 has neither bf16 nor fast fp16", ""},
      {"auto", gpu(0), at::kFloat, "unknown compute capability", ""},
      {"auto", cpu("amx_bf16"), at::kBFloat16, "auto: this CPU has amx_bf16", ""},
      {"auto", cpu("avx512_bf16"), at::kBFloat16, "this CPU has avx512_bf16", ""},
      {"auto", cpu(""), at::kFloat,
       "neither avx512_bf16 nor amx_bf16; and not fp16, whose products", ""},

      {"bf16", gpu(86), at::kBFloat16, "as asked", ""},
      {"bf16", gpu(75), at::kFloat, "bf16 is not available: compute capability 7.5 lacks bf16",
       "7.5 lacks bf16; computing in fp32"},
      {"bf16", gpu(0), at::kFloat, "not available",
       "unknown compute capability lacks bf16; computing in fp32"},
      {"bf16", cpu("avx512_bf16"), at::kBFloat16, "as asked", ""},
      {"bf16", cpu(""), at::kBFloat16, "as asked", "bf16 will be slow here: this CPU has neither"},

      {"fp16", gpu(90), at::kHalf, "as asked, with loss scaling", ""},
      {"fp16", gpu(70), at::kHalf, "with loss scaling", ""},
      {"fp16", gpu(61), at::kHalf, "with loss scaling",
       "fp16 will be slow here: compute capability 6.1 has no fast fp16"},
      {"fp16", gpu(53), at::kHalf, "with loss scaling", "slow here"},
      {"fp16", gpu(52), at::kFloat, "fp16 is not available", "5.2 lacks fp16; computing in fp32"},
      {"fp16", cpu("amx_bf16"), at::kHalf, "with loss scaling",
       "a CPU computes its products in fp32 and rounds them"},
      {"fp16", cpu(""), at::kHalf, "with loss scaling", "fp16 will be slow here"},

      {"fp32", gpu(90), at::kFloat, "as asked", ""},
      {"fp32", gpu(0), at::kFloat, "as asked", ""},
      {"fp32", cpu("amx_bf16"), at::kFloat, "as asked", ""},
  };
  for (const Row& row : rows) {
    const Precision got = choose_precision(row.asked, row.device);
    const std::string where =
        std::string(row.asked) + ", " +
        (row.device.gpu ? std::to_string(row.device.capability) : row.device.bf16_unit);
    EXPECT_EQ(got.compute, row.compute) << where;
    EXPECT_NE(got.reason.find(row.reason), std::string::npos) << where << ": " << got.reason;
    EXPECT_NE(got.notice.find(row.notice), std::string::npos) << where << ": " << got.notice;
    EXPECT_EQ(got.notice.empty(), *row.notice == 0) << where << ": " << got.notice;
    EXPECT_TRUE(got.notice.empty() || got.notice.starts_with("precision.compute: ")) << got.notice;
  }
}

TEST(Precision, TheNoticeNamesTheOption) {
  EXPECT_TRUE(choose_precision("fp16", cpu(""), "--dtype")
                  .notice.starts_with("--dtype: fp16 will be slow"));
}

TEST(Precision, NamesGoBothWays) {
  for (const char* name : {"fp32", "bf16", "fp16"})
    EXPECT_EQ(compute_name(compute_type(name)), name);
  for (const char* name : {"auto", "FP16", "half", "", "fp8"}) {
    EXPECT_LFT_ERROR(ErrorKind::kUsage, "fp32, bf16 or fp16", compute_type(name));
  }
  EXPECT_LFT_ERROR(ErrorKind::kUsage, "unknown dtype", choose_precision("int8", cpu("")));
}

TEST(Precision, ThisMachineHasFacts) {
  const DeviceFacts facts = device_facts(at::kCPU);
  EXPECT_FALSE(facts.gpu);
  EXPECT_EQ(facts.capability, 0);
  EXPECT_TRUE(facts.bf16_unit.empty() || facts.bf16_unit == "amx_bf16" ||
              facts.bf16_unit == "avx512_bf16");
}

TEST(Precision, PackedPassesNeedFlashAttention) {
  EXPECT_EQ(packing_fault(at::kBFloat16, 128, gpu(80)), "");
  EXPECT_EQ(packing_fault(at::kHalf, 256, gpu(90)), "");
  EXPECT_EQ(packing_fault(at::kHalf, 128, gpu(75)),
            "compute capability 7.5 has no flash attention");
  EXPECT_EQ(packing_fault(at::kBFloat16, 264, gpu(90)),
            "heads of 264 are too wide for flash attention");
  EXPECT_EQ(packing_fault(at::kFloat, 264, gpu(75)), "");
  EXPECT_EQ(packing_fault(at::kBFloat16, 264, cpu("amx_bf16")), "");
}

}  // namespace
}  // namespace lft::test::precision_test
