// AdamW: its reference against closed forms and torch's numbers, and the kernel against the
// reference.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "kernels/adamw/adamw.h"
#include "kernels/arena.h"

namespace lft::adamw_test {
namespace {

constexpr FloatType kTypes[] = {FloatType::kF32, FloatType::kBF16, FloatType::kF16};

struct Rates {
  double lr = 0.1, weight_decay = 0;
  int64_t t = 1;
};

struct Ask {
  AdamWArgs args;
  GradControl control;
  std::vector<Rates> rates;  // per tensor, repeated cyclically
  bool shadows = false;      // every four arrays are followed by a copy of the first
};

constexpr float kShadowScale = 1.7f;

/// Arrays come in fours: param, exp_avg, exp_avg_sq, grad; or in fives.
std::vector<AdamWItem> table(const test::Arena& arena, uint8_t* base, const Ask& ask) {
  std::vector<AdamWItem> items;
  const auto& arrays = arena.arrays();
  const size_t parts = ask.shadows ? 5 : 4;
  for (size_t i = 0; i + parts <= arrays.size(); i += parts) {
    AdamWItem item;
    item.param = reinterpret_cast<float*>(base + arrays[i].offset);
    item.exp_avg = reinterpret_cast<float*>(base + arrays[i + 1].offset);
    item.exp_avg_sq = reinterpret_cast<float*>(base + arrays[i + 2].offset);
    item.grad = base + arrays[i + 3].offset;
    item.count = arrays[i].count;
    item.type = arrays[i + 3].type;
    if (ask.shadows) {
      const test::Array& copy = arrays[i + 4];
      item.shadow = {.data = base + copy.offset, .scale = kShadowScale, .type = copy.type};
    }
    const Rates& rates = ask.rates[i / parts % ask.rates.size()];
    set_rates(item, ask.args, rates.lr, rates.weight_decay, rates.t);
    items.push_back(item);
  }
  return items;
}

void run_ref(test::Arena& arena, const Ask& ask) {
  std::vector<AdamWItem> items = table(arena, arena.bytes().data(), ask);
  AdamWArgs args = ask.args;
  args.items = items.data();
  args.count = static_cast<int64_t>(items.size());
  args.chunks = number_chunks(items);
  args.control = &ask.control;
  adamw_ref(args);
}

void add_tensor(test::Arena& arena, FloatType type, int64_t count, int64_t misaligned,
                uint32_t seed) {
  arena.fill_normal(arena.add(FloatType::kF32, count, misaligned), seed, 0.5f);
  arena.fill_normal(arena.add(FloatType::kF32, count, misaligned), seed + 1, 0.1f);
  const size_t squares = arena.add(FloatType::kF32, count, misaligned);
  arena.fill_normal(squares, seed + 2, 0.1f);
  for (int64_t i = 0; i < count; ++i)
    arena.set(squares, i, arena.get(squares, i) * arena.get(squares, i));
  arena.fill_normal(arena.add(type, count, misaligned), seed + 3, 0.3f);
}

TEST(AdamWRef, TheFirstStepMovesByTheLearningRateInTheGradientsDirection) {
  test::Arena arena;
  const size_t p = arena.put(FloatType::kF32, {1, 1, 1});
  arena.add(FloatType::kF32, 3);
  arena.add(FloatType::kF32, 3);
  arena.put(FloatType::kF32, {4, -0.25f, 0});
  run_ref(arena, {.args = {}, .control = {}, .rates = {{.lr = 0.125, .weight_decay = 0, .t = 1}}});
  // exp_avg / (1 - beta1) = g and sqrt(exp_avg_sq / (1 - beta2)) = |g|: the update is lr * g / (|g|
  // + eps), eps/|g| being 4e-8 at most.
  EXPECT_FLOAT_EQ(arena.get(p, 0), 0.875f);
  EXPECT_FLOAT_EQ(arena.get(p, 1), 1.125f);
  EXPECT_EQ(arena.get(p, 2), 1.0f);
  EXPECT_FLOAT_EQ(arena.get(p + 1, 0), 0.4f);
  EXPECT_FLOAT_EQ(arena.get(p + 2, 0), 0.016f);
}

// torch 2.11 in float64: torch.optim.AdamW([p], betas=(0.8, 0.95), eps=1e-6, weight_decay=0.1), lr
// 0.1, 0.05, 0.025 in three steps.
TEST(AdamWRef, EqualsTorchOverThreeSteps) {
  test::Arena arena;
  const size_t p = arena.put(FloatType::kF32, {1.0f, -2.0f, 0.5f});
  arena.add(FloatType::kF32, 3);
  arena.add(FloatType::kF32, 3);
  const size_t g = arena.add(FloatType::kF32, 3);
  const std::vector<std::vector<float>> gradients = {
      {0.1f, -0.2f, 0.3f}, {0.4f, 0.5f, -0.6f}, {-1.0f, 0.0f, 2.0f}};
  for (int64_t step = 0; step < 3; ++step) {
    for (int64_t i = 0; i < 3; ++i) arena.set(g, i, gradients[step][i]);
    Ask ask{.args = {},
            .control = {},
            .rates = {{.lr = 0.1 * std::pow(0.5, step), .weight_decay = 0.1, .t = step + 1}}};
    ask.args.beta1 = 0.8;
    ask.args.beta2 = 0.95;
    ask.args.eps = 1e-6;
    run_ref(arena, ask);
  }
  const std::vector<double> params = {0.8481189689812021, -1.8994362665616373, 0.3988256522639316};
  const std::vector<double> averages = {-0.1232, 0.0544, 0.3424},
                            squares = {0.05805125, 0.01368, 0.22116125};
  for (int64_t i = 0; i < 3; ++i) {
    EXPECT_NEAR(arena.get(p, i), params[i], 3 * 0x1p-24 * 2);  // three roundings of numbers below 2
    EXPECT_NEAR(arena.get(p + 1, i), averages[i], 3 * 0x1p-24);
    EXPECT_NEAR(arena.get(p + 2, i), squares[i], 3 * 0x1p-24);
  }
}

TEST(AdamWRef, DecayAloneShrinksAndLearningRateZeroKeepsEveryBit) {
  test::Arena arena;
  add_tensor(arena, FloatType::kF32, 100, 0, 3);
  const std::vector<float> before = arena.values(0), average = arena.values(1);
  run_ref(arena, {.args = {}, .control = {}, .rates = {{.lr = 0, .weight_decay = 0.5, .t = 9}}});
  EXPECT_EQ(arena.values(0), before);
  EXPECT_NE(arena.values(1), average);  // the moments are still updated

  test::Arena still;
  const size_t p = still.put(FloatType::kF32, {2, -8});
  for (int i = 0; i < 3; ++i) still.add(FloatType::kF32, 2);
  run_ref(still, {.args = {}, .control = {}, .rates = {{.lr = 0.5, .weight_decay = 0.25, .t = 4}}});
  EXPECT_EQ(still.values(p), (std::vector<float>{1.75f, -7}));
}

TEST(AdamWRef, ClipsTheGradientOfAnyType) {
  for (const FloatType type : kTypes) {
    test::Arena clipped, scaled;
    add_tensor(clipped, type, 50, 0, 11);
    add_tensor(scaled, FloatType::kF32, 50, 0, 11);
    for (int64_t i = 0; i < 50; ++i) scaled.set(3, i, clipped.get(3, i) * 0.25f);
    Ask ask{.args = {}, .control = {}, .rates = {{.lr = 0.01, .weight_decay = 0.1, .t = 5}}};
    run_ref(scaled, ask);
    ask.control.clip = 0.25f;
    run_ref(clipped, ask);
    for (size_t part = 0; part < 3; ++part) EXPECT_EQ(clipped.values(part), scaled.values(part));
  }
}

template <class Run>
void expect_found_inf_keeps(FloatType type, int64_t count, const Run& run) {
  test::Arena arena;
  add_tensor(arena, type, count, 0, 1);
  const std::vector<uint8_t> before = arena.bytes();
  Ask ask{.args = {}, .control = {}, .rates = {{.lr = 0.1, .weight_decay = 0.1, .t = 2}}};
  ask.control.found_inf = 1;
  run(arena, ask);
  EXPECT_EQ(arena.bytes(), before);
}

TEST(AdamWRef, FoundInfKeepsEveryBit) { expect_found_inf_keeps(FloatType::kBF16, 40, run_ref); }

/// Every size and alignment, in both 16-bit types; the parameters are large enough to round.
test::Arena with_shadows() {
  test::Arena arena;
  uint32_t seed = 1;
  for (const int64_t count : {0, 1, 3, 4, 5, 1023, 16384, 16385}) {
    for (const FloatType type : {FloatType::kBF16, FloatType::kF16}) {
      for (const int64_t misaligned : {0, 1}) {
        add_tensor(arena, FloatType::kF32, count, misaligned, seed += 4);
        arena.add(type, count, misaligned);
      }
    }
  }
  return arena;
}

/// A copy is the stored parameter times the scale in float32, rounded: bit for bit.
void expect_shadows(const test::Arena& arena) {
  for (size_t a = 0; a < arena.arrays().size(); a += 5) {
    uint16_t want = 0;
    const FloatType type = arena.arrays()[a + 4].type;
    for (int64_t i = 0; i < arena.arrays()[a].count; ++i) {
      const float scaled = arena.get(a, i) * kShadowScale;
      store_float(type, &want, 0, scaled);
      ASSERT_EQ(arena.get(a + 4, i), load_float(type, &want, 0)) << a << " " << i;
    }
  }
}

TEST(AdamWRef, WritesTheShadowWithTheParameter) {
  test::Arena arena = with_shadows();
  run_ref(arena, {.args = {}, .control = {}, .rates = {{.lr = 0.01}}, .shadows = true});
  expect_shadows(arena);
}

TEST(AdamWRef, BiasCorrectionsFollowT) {
  AdamWItem item;
  const AdamWArgs args;
  set_rates(item, args, 0.01, 0.1, 1);
  EXPECT_NEAR(item.step_size, 0.1, 1e-15);
  EXPECT_NEAR(item.inverse_root, 1 / std::sqrt(0.001), 1e-11);
  EXPECT_NEAR(item.decay, 0.001, 1e-18);
  set_rates(item, args, 0.01, 0, 1000000);
  EXPECT_EQ(item.step_size, 0.01);
  EXPECT_EQ(item.inverse_root, 1);
}

#ifdef LFT_HAVE_CUDA

void run_gpu(test::Arena& arena, const Ask& ask) {
  test::DeviceArray<uint8_t> bytes(arena.bytes());
  std::vector<AdamWItem> items = table(arena, bytes.data(), ask);
  AdamWArgs args = ask.args;
  args.count = static_cast<int64_t>(items.size());
  args.chunks = number_chunks(items);
  test::DeviceArray<AdamWItem> on_device(items);
  test::DeviceArray<GradControl> control({ask.control});
  args.items = on_device.data();
  args.control = control.data();
  adamw(args, nullptr);
  arena.bytes() = bytes.to_host();
}

/// One update from equal inputs. u = 2^-24. exp_avg: four roundings of parts no larger than 2 (|m|
/// + |g|), exp_avg_sq: six of positive parts, the parameter: its own two, and ten of the update
/// plus the error of exp_avg in it.
void expect_gpu_equals_ref(const test::Arena& start, const Ask& ask) {
  test::Arena want = start, got = start, again = start;
  run_ref(want, ask);
  run_gpu(got, ask);
  run_gpu(again, ask);
  EXPECT_EQ(got.bytes(), again.bytes());
  constexpr double kUnit = 0x1p-24;
  const std::vector<AdamWItem> items = table(want, want.bytes().data(), ask);
  for (size_t a = 0; a < start.arrays().size(); a += 4) {
    const AdamWItem& item = items[a / 4];
    for (int64_t i = 0; i < item.count; ++i) {
      const double g = std::abs(start.get(a + 3, i)) * ask.control.clip,
                   m = std::abs(start.get(a + 1, i));
      const double average_error = 8 * kUnit * (m + g), v = want.get(a + 2, i);
      const double slope = item.step_size / (std::sqrt(v) * item.inverse_root + ask.args.eps),
                   p = std::abs(start.get(a, i));
      const double update = item.decay * p + slope * std::abs(want.get(a + 1, i));
      ASSERT_NEAR(got.get(a + 1, i), want.get(a + 1, i), average_error) << a << " " << i;
      ASSERT_NEAR(got.get(a + 2, i), v, 6 * kUnit * v) << a << " " << i;
      ASSERT_NEAR(got.get(a, i), want.get(a, i),
                  2 * kUnit * (p + update) + 10 * kUnit * update + slope * average_error)
          << a << " " << i;
      ASSERT_EQ(got.get(a + 3, i), start.get(a + 3, i));
    }
  }
}

TEST(AdamWGpu, EqualsTheReferenceAtEverySizeTypeAndAlignment) {
  if (!test::has_gpu()) GTEST_SKIP() << "no GPU";
  test::Arena arena;
  uint32_t seed = 1;
  for (const int64_t count : {0, 1, 3, 4, 5, 1023, 16384, 16385, 50001}) {
    for (const FloatType type : kTypes) {
      for (const int64_t misaligned : {0, 1}) add_tensor(arena, type, count, misaligned, seed += 4);
    }
  }
  Ask ask{.args = {},
          .control = {},
          .rates = {{.lr = 0.01, .weight_decay = 0.1, .t = 1},
                    {.lr = 2e-4, .weight_decay = 0, .t = 700},
                    {.lr = 0}}};
  expect_gpu_equals_ref(arena, ask);
  ask.control.clip = 0.3f;
  expect_gpu_equals_ref(arena, ask);
}

TEST(AdamWGpu, WritesTheShadowWithTheParameterAndNoneWhereItFoundInf) {
  if (!test::has_gpu()) GTEST_SKIP() << "no GPU";
  test::Arena arena = with_shadows();
  const std::vector<uint8_t> before = arena.bytes();
  Ask ask{.args = {}, .control = {}, .rates = {{.lr = 0.01}}, .shadows = true};
  ask.control.found_inf = 1;
  run_gpu(arena, ask);
  EXPECT_EQ(arena.bytes(), before);
  ask.control.found_inf = 0;
  run_gpu(arena, ask);
  EXPECT_NE(arena.bytes(), before);
  expect_shadows(arena);
}

TEST(AdamWGpu, MoreTensorsThanBlocks) {
  if (!test::has_gpu()) GTEST_SKIP() << "no GPU";
  test::Arena arena;
  for (int i = 0; i < 5000; ++i) add_tensor(arena, kTypes[i % 3], i % 6, 0, uint32_t(i));
  expect_gpu_equals_ref(
      arena, {.args = {},
              .control = {},
              .rates = {{.lr = 0.01, .weight_decay = 0.1, .t = 3}, {.lr = 0.1, .t = 4}}});
}

TEST(AdamWGpu, FoundInfKeepsEveryBit) {
  if (!test::has_gpu()) GTEST_SKIP() << "no GPU";
  expect_found_inf_keeps(FloatType::kF32, 20000, run_gpu);
}

#endif

}  // namespace
}  // namespace lft::adamw_test
