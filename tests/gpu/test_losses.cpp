// Losses and adapters of a tiny model's run on a device against those on the CPU in FP32.
#include "gpu/devices.h"
#include "gpu/shard_run.h"

namespace lft::test::losses_test {
using namespace lft::recipe;
namespace {

struct Way {
  const char* name;
  std::function<void(Recipe&)> set;
};
const std::vector<Way>& ways() {
  static const std::vector<Way> all = {
      {"padded", [](Recipe&) {}},
      {"packed", [](Recipe& r) { r.train.max_tokens_per_step = 512; }},
      {"packed_in_several", [](Recipe& r) { r.train.max_tokens_per_step = 96; }},
      {"accumulated", [](Recipe& r) { r.train.batch_size = 2, r.train.grad_accum = 3; }},
      {"dropout", [](Recipe& r) { r.lora.dropout = 0.25; }},
      {"recomputed", [](Recipe& r) { r.train.activation_checkpointing = "block"; }},
      {"offloaded",
       [](Recipe& r) {
         r.train.activation_checkpointing = "block",
         r.train.activation_offload = r.optim.offload = true;
       }},
      {"moments_in_8_bits",
       [](Recipe& r) {
         r.optim.name = "adamw8bit", r.full = {"projector", "llm"}, r.lora.targets = {};
       }},
      {"nf4", [](Recipe& r) { r.model.base_dtype = "nf4"; }},
      {"fp8", [](Recipe& r) { r.model.base_dtype = "fp8"; }},
      {"every_tower",
       [](Recipe& r) {
         r.lora.targets = {"llm:all-linear", "vision:all-linear", "projector:all-linear"},
         r.full.clear();
       }},
  };
  return all;
}

class DeviceLosses : public OnDevice {
 protected:
  Recipe recipe(const Way& way, const std::string& compute) const {
    Recipe recipe = run_.recipe("none");
    recipe.model.base_dtype = compute == "fp32" ? "fp32" : "bf16";
    recipe.precision.compute = compute;
    recipe.precision.loss_scale.init = 1024;
    recipe.train.max_steps = 6;
    way.set(recipe);
    return recipe;
  }
  const ShardRun run_;
};
LFT_ON_EACH_DEVICE(DeviceLosses);

/// The same sums in another order, 2^-24 apart in each of a few hundred operations; Adam divides a
/// gradient by its magnitude, so that errors of small gradients count as much as of large ones.
TEST_P(DeviceLosses, InFp32AreThoseOfTheCpu) {
  for (const Way& way : ways()) {
    const Trace want = run_on(at::kCPU, recipe(way, "fp32")),
                got = run_on(device(), recipe(way, "fp32"));
    ASSERT_EQ(want.losses.size(), 6u);
    for (size_t i = 0; i < want.losses.size(); ++i) {
      EXPECT_NEAR(got.losses[i], want.losses[i], 1e-4 * want.losses[i])
          << way.name << " step " << i + 1;
      EXPECT_NEAR(got.norms[i], want.norms[i], 1e-3 * want.norms[i])
          << way.name << " step " << i + 1;
    }
    EXPECT_LE(got.distance(want), 1e-2) << way.name;
    EXPECT_LT(want.losses.back(), want.losses.front()) << way.name;
  }
}

/// Rounding moves a run away from FP32 by some distance; on a device by at most three times
/// as much as on the CPU.
TEST_P(DeviceLosses, InLowPrecisionAreAsNearToFp32AsTheCpus) {
  for (const char* compute : {"fp16", "bf16"}) {
    if (!on_gpu() && compute == std::string("bf16"))
      continue;  // the same comparison of the CPU with itself
    for (const Way& way : ways()) {
      Recipe exact = recipe(way, compute);
      exact.precision.compute = "fp32";
      const Trace want = run_on(at::kCPU, exact), here = run_on(at::kCPU, recipe(way, compute)),
                  got = run_on(device(), recipe(way, compute));
      const double floor = rounding(at::kHalf) * want.losses.front();
      EXPECT_GT(here.mean_difference(want), 0) << compute << " " << way.name;
      EXPECT_LE(got.mean_difference(want), 3 * here.mean_difference(want) + floor)
          << compute << " " << way.name;
      EXPECT_LE(got.distance(want), 3 * here.distance(want) + 1e-3) << compute << " " << way.name;
    }
  }
}

}  // namespace
}  // namespace lft::test::losses_test
