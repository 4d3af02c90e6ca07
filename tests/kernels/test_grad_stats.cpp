// The gradient check: its reference against closed forms, the split into chunks, and the kernel
// against the reference.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "kernels/arena.h"
#include "kernels/grad_stats/grad_stats.h"

namespace lft::grad_stats_test {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN(),
                kInf = std::numeric_limits<float>::infinity();
constexpr float kMax = std::numeric_limits<float>::max();
constexpr FloatType kTypes[] = {FloatType::kF32, FloatType::kBF16, FloatType::kF16};

struct Result {
  GradControl control;
  std::vector<double> squares;
};

struct Ask {
  float inv_scale = 1;
  double max_norm = 0;
  std::vector<double> loss;  // one or none
};

/// Arrays of count 0 become absent gradients.
std::vector<GradTensor> table(const test::Arena& arena, uint8_t* base) {
  std::vector<GradTensor> tensors;
  for (const test::Array& array : arena.arrays())
    tensors.push_back(
        {array.count == 0 ? nullptr : base + array.offset, array.count, 0, array.type});
  return tensors;
}

Result run_ref(test::Arena& arena, const Ask& ask) {
  std::vector<GradTensor> tensors = table(arena, arena.bytes().data());
  Result result{{}, std::vector<double>(tensors.size(), -1)};
  GradStatsArgs args;
  args.chunks = number_chunks(tensors);
  args.tensors = tensors.data();
  args.count = static_cast<int64_t>(tensors.size());
  args.inv_scale = ask.inv_scale;
  args.max_norm = ask.max_norm;
  args.loss = ask.loss.empty() ? nullptr : ask.loss.data();
  args.squares = result.squares.data();
  args.control = &result.control;
  grad_stats_ref(args);
  return result;
}

TEST(Chunks, CoverEveryElementOnceWhateverTheCounts) {
  const std::vector<std::vector<int64_t>> lists = {
      {}, {0}, {1}, {0, 0, 5, 0}, {kChunk, 0, kChunk + 1, kChunk - 1, 0, 3 * kChunk, 1}};
  for (const std::vector<int64_t>& counts : lists) {
    std::vector<GradTensor> tensors;
    for (const int64_t count : counts) tensors.push_back({nullptr, count, -1, FloatType::kF32});
    const int64_t chunks = number_chunks(tensors);
    int64_t number = 0;
    for (size_t t = 0; t < counts.size(); ++t) {
      EXPECT_EQ(tensors[t].first_chunk, number);
      for (int64_t first = 0; first < counts[t]; first += kChunk, ++number) {
        const Chunk chunk =
            find_chunk(tensors.data(), static_cast<int64_t>(tensors.size()), number);
        EXPECT_EQ(chunk.tensor, static_cast<int64_t>(t));
        EXPECT_EQ(chunk.first, first);
        EXPECT_EQ(chunk.count, std::min(kChunk, counts[t] - first));
      }
    }
    EXPECT_EQ(chunks, number);
  }
}

TEST(GradStatsRef, SumsSquaresAndDecides) {
  test::Arena arena;
  arena.put(FloatType::kF32, {3, 4});
  arena.add(FloatType::kF32, 0);
  arena.put(FloatType::kBF16, std::vector<float>(9, -4.0f));
  const Result result = run_ref(arena, {.inv_scale = 1, .max_norm = 6.5, .loss = {2.0}});
  EXPECT_EQ(result.squares, (std::vector<double>{25, 0, 144}));
  EXPECT_EQ(result.control.squared_norm, 169);
  EXPECT_EQ(result.control.first_bad, -1);
  EXPECT_EQ(result.control.loss_bad, 0);
  EXPECT_EQ(result.control.found_inf, 0);
  EXPECT_EQ(result.control.clip, static_cast<float>(6.5 / (13 + 1e-6)));
}

TEST(GradStatsRef, NothingToCheckIsFine) {
  test::Arena arena;
  const Result result = run_ref(arena, {.inv_scale = 0.5f, .max_norm = 1, .loss = {}});
  EXPECT_EQ(result.control.squared_norm, 0);
  EXPECT_EQ(result.control.clip, 1);
  EXPECT_EQ(result.control.found_inf, 0);
}

TEST(GradStatsRef, ClipsOnlyAboveTheNormAndNeverWhenOffOrBad) {
  const auto clip = [](float value, double max_norm, double loss) {
    test::Arena arena;
    arena.put(FloatType::kF32, {value});
    return run_ref(arena, {.inv_scale = 1, .max_norm = max_norm, .loss = {loss}}).control.clip;
  };
  EXPECT_EQ(clip(2, 1, 0), static_cast<float>(1 / (2 + 1e-6)));
  EXPECT_LT(clip(1, 1, 0), 1);  // as in torch: 1 / (1 + 1e-6)
  EXPECT_EQ(clip(0.5f, 1, 0), 1);
  EXPECT_EQ(clip(0, 1, 0), 1);
  EXPECT_EQ(clip(100, 0, 0), 1);
  EXPECT_EQ(clip(kInf, 1, 0), 1);
  EXPECT_EQ(clip(100, 1, kNan), 1);
}

TEST(GradStatsRef, TheLossAloneStopsTheUpdate) {
  for (const double loss :
       {static_cast<double>(kNan), static_cast<double>(kInf), -static_cast<double>(kInf), 1e300}) {
    test::Arena arena;
    arena.put(FloatType::kF32, {1});
    const GradControl control =
        run_ref(arena, {.inv_scale = 1, .max_norm = 0, .loss = {loss}}).control;
    EXPECT_EQ(control.loss_bad, std::isfinite(loss) ? 0 : 1) << loss;
    EXPECT_TRUE(std::isnan(loss) ? std::isnan(control.loss) : control.loss == loss) << control.loss;
    EXPECT_EQ(control.found_inf, std::isfinite(loss) ? 0 : 1) << loss;
    EXPECT_EQ(control.first_bad, -1);
  }
}

TEST(GradStatsRef, NamesTheFirstBadTensorOfAnyType) {
  for (const FloatType type : kTypes) {
    for (const float bad : {kNan, kInf, -kInf}) {
      test::Arena arena;
      arena.put(FloatType::kF32, {1, 2});
      arena.add(FloatType::kF32, 0);
      const size_t first = arena.put(type, std::vector<float>(11, 0.5f));
      arena.set(first, 10, bad);
      arena.put(type, {kNan});
      const GradControl control =
          run_ref(arena, {.inv_scale = 0.25f, .max_norm = 1, .loss = {}}).control;
      EXPECT_EQ(control.first_bad, 2);
      EXPECT_EQ(control.found_inf, 1);
      EXPECT_FALSE(std::isfinite(control.squared_norm));
    }
  }
}

TEST(GradStatsRef, NeitherLargeNorDenormalGradientsLeaveTheDouble) {
  test::Arena arena;
  arena.put(FloatType::kF32, std::vector<float>(1000, kMax));
  arena.put(FloatType::kF32, std::vector<float>(4, 0x1p-149f));
  arena.put(FloatType::kF16, std::vector<float>(4, 0x1p-24f));
  arena.put(FloatType::kBF16, std::vector<float>(4, 0x1p-133f));
  const Result result = run_ref(arena, {.inv_scale = 1, .max_norm = 1, .loss = {}});
  EXPECT_EQ(result.control.found_inf, 0);
  EXPECT_NEAR(result.control.squared_norm / (1000.0 * kMax * double{kMax}), 1, 1e-13);
  EXPECT_EQ(result.squares[1], 0x1p-296);
  EXPECT_EQ(result.squares[2], 0x1p-46);
  EXPECT_EQ(result.squares[3], 0x1p-264);
}

TEST(GradStatsRef, UnscalesInPlaceRoundingToTheType) {
  test::Arena arena;
  const size_t f32 = arena.put(FloatType::kF32, {65536, -3, 0});
  const size_t bf16 = arena.put(FloatType::kBF16, {65536, 1.0078125f});
  const size_t f16 = arena.put(FloatType::kF16, {1024, 0.0009765625f, 0x1.8p-10f});
  const Result result = run_ref(arena, {.inv_scale = 0x1p-16f, .max_norm = 0, .loss = {}});
  EXPECT_EQ(arena.values(f32), (std::vector<float>{1, -3 * 0x1p-16f, 0}));
  EXPECT_EQ(arena.values(bf16), (std::vector<float>{1, 1.0078125f * 0x1p-16f}));
  EXPECT_EQ(arena.values(f16),
            (std::vector<float>{
                0x1p-6f, 0, 0}));  // half of 2^-24 and less becomes the even 0: 2^-26, 1.5 * 2^-26
  EXPECT_EQ(result.squares[f16], 0x1p-12);  // sum over the stored values
}

TEST(GradStatsRef, AnUnscaleThatOverflowsIsBad) {
  const auto found_inf = [](FloatType type, float value, float inv_scale) {
    test::Arena arena;
    arena.put(type, {value});
    return run_ref(arena, {.inv_scale = inv_scale, .max_norm = 0, .loss = {}}).control.found_inf;
  };
  EXPECT_EQ(found_inf(FloatType::kF32, kMax, 2), 1);
  EXPECT_EQ(found_inf(FloatType::kF32, kMax / 2, 2), 0);
  EXPECT_EQ(found_inf(FloatType::kF16, 40000, 2), 1);
  EXPECT_EQ(found_inf(FloatType::kF16, 30000, 2), 0);
  EXPECT_EQ(found_inf(FloatType::kBF16, 40000, 2), 0);
}

TEST(GradStatsRef, ScaleOneWritesNothing) {
  test::Arena arena;
  const size_t index = arena.add(FloatType::kBF16, 2);
  const uint16_t bits[] = {0xFF81u, 0x0001u};  // a signalling NaN with a payload, a denormal
  std::memcpy(arena.data(index), bits, sizeof bits);
  run_ref(arena, {.inv_scale = 1, .max_norm = 1, .loss = {}});
  EXPECT_EQ(std::memcmp(arena.data(index), bits, sizeof bits), 0);
}

#ifdef LFT_HAVE_CUDA

Result run_gpu(test::Arena& arena, const Ask& ask) {
  test::DeviceArray<uint8_t> bytes(arena.bytes());
  std::vector<GradTensor> tensors = table(arena, bytes.data());
  GradStatsArgs args;
  args.chunks = number_chunks(tensors);
  args.count = static_cast<int64_t>(tensors.size());
  args.inv_scale = ask.inv_scale;
  args.max_norm = ask.max_norm;
  test::DeviceArray<GradTensor> on_device(tensors);
  test::DeviceArray<double> loss(ask.loss), squares(std::vector<double>(tensors.size(), -1)),
      partials(std::vector<double>(args.chunks, -1));
  test::DeviceArray<GradControl> control(std::vector<GradControl>(1));
  args.tensors = on_device.data();
  args.loss = ask.loss.empty() ? nullptr : loss.data();
  args.squares = squares.data();
  args.control = control.data();
  grad_stats(args, partials.data(), nullptr);
  arena.bytes() = bytes.to_host();
  return {control.to_host().at(0), squares.to_host()};
}

void expect_near(double got, double want, int64_t terms) {
  if (!std::isfinite(want)) {
    EXPECT_FALSE(std::isfinite(got));
    return;
  }
  EXPECT_NEAR(got, want,
              static_cast<double>(terms + 1) * 0x1p-52 *
                  want);  // two sums of positive doubles, each off by terms * 2^-53
}

void expect_equal(const Result& got, const Result& want, int64_t terms) {
  ASSERT_EQ(got.squares.size(), want.squares.size());
  for (size_t t = 0; t < want.squares.size(); ++t)
    expect_near(got.squares[t], want.squares[t], terms);
  expect_near(got.control.squared_norm, want.control.squared_norm, terms);
  EXPECT_EQ(got.control.first_bad, want.control.first_bad);
  EXPECT_EQ(got.control.loss_bad, want.control.loss_bad);
  EXPECT_TRUE(std::isnan(want.control.loss) ? std::isnan(got.control.loss)
                                            : got.control.loss == want.control.loss);
  EXPECT_EQ(got.control.found_inf, want.control.found_inf);
  EXPECT_NEAR(got.control.clip, want.control.clip, 0x1p-23 * want.control.clip);
}

/// Gradients bit-equal to the reference's (NaN equal to NaN), sums within rounding, and a second
/// run equal to the first in every bit.
void expect_gpu_equals_ref(const test::Arena& start, const Ask& ask) {
  test::Arena want_arena = start, got_arena = start, again_arena = start;
  const Result want = run_ref(want_arena, ask), got = run_gpu(got_arena, ask),
               again = run_gpu(again_arena, ask);
  expect_equal(got, want, static_cast<int64_t>(start.arrays().size()) + 200000);
  for (size_t index = 0; index < start.arrays().size(); ++index) {
    for (int64_t i = 0; i < start.arrays()[index].count; ++i) {
      const float a = got_arena.get(index, i), b = want_arena.get(index, i);
      ASSERT_TRUE(float_to_bits(a) == float_to_bits(b) || (std::isnan(a) && std::isnan(b)))
          << index << " " << i;
    }
  }
  EXPECT_EQ(got_arena.bytes(), again_arena.bytes());
  EXPECT_EQ(std::memcmp(&got.control, &again.control, sizeof got.control), 0);
  EXPECT_EQ(
      std::memcmp(got.squares.data(), again.squares.data(), got.squares.size() * sizeof(double)),
      0);
}

test::Arena mixed_arena() {
  test::Arena arena;
  uint32_t seed = 1;
  for (const int64_t count : {0, 1, 3, 4, 5, 8, 9, 255, 1024, 16383, 16384, 16385, 100003}) {
    for (const FloatType type : kTypes) {
      for (const int64_t misaligned : {0, 1, 3}) {
        const size_t index = arena.add(type, count, misaligned);
        arena.fill_normal(index, seed++, 0.3f);
      }
    }
  }
  return arena;
}

TEST(GradStatsGpu, EqualsTheReferenceAtEverySizeTypeAndAlignment) {
  if (!test::has_gpu()) GTEST_SKIP() << "no GPU";
  const test::Arena arena = mixed_arena();
  for (const float inv_scale : {1.0f, 0x1p-16f, 0.3f})
    expect_gpu_equals_ref(arena, {.inv_scale = inv_scale, .max_norm = 1, .loss = {0.5}});
}

TEST(GradStatsGpu, TheSumDoesNotDependOnTheAlignment) {
  if (!test::has_gpu()) GTEST_SKIP() << "no GPU";
  std::vector<double> sums;
  for (const int64_t misaligned : {0, 1, 2, 3}) {
    test::Arena arena;
    arena.fill_normal(arena.add(FloatType::kF32, 50001, misaligned), 5, 1);
    sums.push_back(
        run_gpu(arena, {.inv_scale = 0.5f, .max_norm = 0, .loss = {}}).control.squared_norm);
  }
  for (const double sum : sums) EXPECT_EQ(sum, sums[0]);
}

TEST(GradStatsGpu, FindsABadElementAnywhere) {
  if (!test::has_gpu()) GTEST_SKIP() << "no GPU";
  for (const FloatType type : kTypes) {
    for (const int64_t place : {0, 3, 7, 8, 16383, 16384, 33000, 33002}) {
      test::Arena arena;
      arena.put(FloatType::kF32, {1, 2, 3});
      arena.add(type, 0);
      arena.set(arena.add(type, 33003), place, place % 2 == 0 ? kNan : -kInf);
      arena.put(type, {kInf});
      expect_gpu_equals_ref(arena, {.inv_scale = 0.5f, .max_norm = 1, .loss = {kInf}});
    }
  }
}

TEST(GradStatsGpu, ManyTensorsFewOrNone) {
  if (!test::has_gpu()) GTEST_SKIP() << "no GPU";
  for (const int count : {0, 1, 4095, 4096, 4097, 9000}) {  // around and above the largest grid
    test::Arena arena;
    for (int i = 0; i < count; ++i)
      arena.put(kTypes[i % 3], std::vector<float>(1 + i % 5, 0.01f * float(i % 7)), i % 2);
    expect_gpu_equals_ref(arena, {.inv_scale = 1, .max_norm = 0.5, .loss = {1}});
    if (count == 0) continue;
    arena.set(count - 1, 0, kNan);
    expect_gpu_equals_ref(arena, {.inv_scale = 1, .max_norm = 0.5, .loss = {}});
  }
}

TEST(GradStatsGpu, LargeDenormalAndOverflowingValues) {
  if (!test::has_gpu()) GTEST_SKIP() << "no GPU";
  test::Arena arena;
  arena.put(FloatType::kF32, std::vector<float>(1000, kMax / 4));
  arena.put(FloatType::kF32, std::vector<float>(33, 0x1p-149f));
  arena.put(FloatType::kF16, std::vector<float>(33, 0x1p-24f));
  arena.put(FloatType::kBF16, std::vector<float>(33, 0x1p-133f));
  for (const float inv_scale : {1.0f, 0.5f, 3.0f})
    expect_gpu_equals_ref(arena, {.inv_scale = inv_scale, .max_norm = 1, .loss = {}});
  arena.put(FloatType::kF16, std::vector<float>(5, 40000));
  expect_gpu_equals_ref(arena, {.inv_scale = 2.0f, .max_norm = 1, .loss = {}});
}

#endif

}  // namespace
}  // namespace lft::grad_stats_test
