// RoPE: the reference against complex multiplication, the kernel against the reference bit for bit.
#include <gtest/gtest.h>

#include <cmath>
#include <complex>

#include "kernels/arena.h"
#include "kernels/rope/rope.h"

namespace lft::rope_test {
namespace {

struct Case {
  Case(FloatType type, int64_t batch, int64_t positions, int64_t heads, int64_t half, bool shared,
       int64_t misaligned = 0) {
    args = {.type = type,
            .rows = batch * positions,
            .heads = heads,
            .half = half,
            .positions = positions,
            .angle_stride = shared ? 0 : positions};
    const int64_t n = batch * positions * heads * 2 * half;
    x = arena.add(type, n, misaligned);
    y = arena.add(type, n, misaligned);
    cos = arena.add(FloatType::kF32, (shared ? 1 : batch) * positions * half);
    sin = arena.add(FloatType::kF32, (shared ? 1 : batch) * positions * half);
    arena.fill_normal(x, 1, 1);
    for (int64_t i = 0; i < arena.arrays()[cos].count; ++i) {
      arena.set(cos, i, std::cos(0.37f * static_cast<float>(i)));
      arena.set(sin, i, std::sin(0.37f * static_cast<float>(i)));
    }
  }
  RopeArgs at(uint8_t* base) const {
    RopeArgs out = args;
    out.cos = reinterpret_cast<const float*>(base + arena.arrays()[cos].offset);
    out.sin = reinterpret_cast<const float*>(base + arena.arrays()[sin].offset);
    return out;
  }
  RopeArgs args;
  test::Arena arena;
  size_t x, y, cos, sin;
};

TEST(RopeRef, MultipliesPairsByUnitComplexNumbers) {
  for (const bool shared : {true, false}) {
    Case c(FloatType::kF32, 2, 3, 2, 4, shared);
    rope_ref(c.at(c.arena.bytes().data()), c.arena.data(c.x), c.arena.data(c.y));
    for (int64_t row = 0; row < 6; ++row) {
      for (int64_t head = 0; head < 2; ++head) {
        for (int64_t i = 0; i < 4; ++i) {
          const int64_t first = (row * 2 + head) * 8 + i;
          const double angle = 0.37 * static_cast<double>((shared ? row % 3 : row) * 4 + i);
          const std::complex<double> pair(c.arena.get(c.x, first), c.arena.get(c.x, first + 4));
          const std::complex<double> want = pair * std::polar(1.0, angle);
          EXPECT_NEAR(c.arena.get(c.y, first), want.real(),
                      2e-6 * (1 + std::abs(pair)));  // the angle is rounded to float32
          EXPECT_NEAR(c.arena.get(c.y, first + 4), want.imag(), 2e-6 * (1 + std::abs(pair)));
        }
      }
    }
  }
}

TEST(RopeRef, TheOtherSignUndoesIt) {
  Case c(FloatType::kF32, 1, 5, 1, 3, true);
  RopeArgs args = c.at(c.arena.bytes().data());
  rope_ref(args, c.arena.data(c.x), c.arena.data(c.y));
  args.sign = -1;
  rope_ref(args, c.arena.data(c.y), c.arena.data(c.y));  // in place
  for (int64_t i = 0; i < 30; ++i)
    EXPECT_NEAR(c.arena.get(c.y, i), c.arena.get(c.x, i),
                1e-6 * (1 + std::abs(c.arena.get(c.x, i))));
}

#ifdef LFT_HAVE_CUDA
void expect_gpu_equals_ref(Case start, bool in_place) {
  Case want = start;
  rope_ref(want.at(want.arena.bytes().data()), want.arena.data(want.x),
           want.arena.data(in_place ? want.x : want.y));
  test::DeviceArray<uint8_t> bytes(start.arena.bytes());
  ASSERT_TRUE(bytes.ok());
  const auto at = [&](size_t a) {
    return static_cast<void*>(bytes.data() + start.arena.arrays()[a].offset);
  };
  rope(start.at(bytes.data()), at(start.x), at(in_place ? start.x : start.y), nullptr);
  EXPECT_EQ(bytes.to_host(), want.arena.bytes()) << start.args.half << " " << start.args.heads;
}

TEST(RopeGpu, EqualsTheReferenceBitForBit) {
  if (!test::has_gpu()) GTEST_SKIP() << "no GPU";
  for (const FloatType type : {FloatType::kF32, FloatType::kBF16, FloatType::kF16}) {
    for (const int64_t half : {1, 5, 8, 64}) {
      for (const bool in_place : {false, true})
        expect_gpu_equals_ref(Case(type, 2, 7, 3, half, half % 2 == 0, half == 64 ? 1 : 0),
                              in_place);
    }
  }
}

/// A thread handles up to four heads, or two of float32; the count varies.
TEST(RopeGpu, EqualsTheReferenceWithAnyNumberOfHeads) {
  if (!test::has_gpu()) GTEST_SKIP() << "no GPU";
  for (const FloatType type : {FloatType::kF32, FloatType::kBF16, FloatType::kF16}) {
    for (const int64_t heads : {1, 2, 4, 5, 9, 32}) {
      for (const int64_t half : {20, 40, 64}) {
        Case start(type, 2, 3, heads, half, /*shared=*/false);
        start.args.sign = heads % 2 == 0 ? -1.0f : 1.0f;
        expect_gpu_equals_ref(start, /*in_place=*/heads == 5);
      }
    }
  }
}

/// The path for tensors of 2^31 or more work items.
TEST(RopeGpu, EqualsTheReferenceIn64BitArithmetic) {
  if (!test::has_gpu()) GTEST_SKIP() << "no GPU";
  for (const FloatType type : {FloatType::kF32, FloatType::kBF16, FloatType::kF16}) {
    for (const int64_t half : {5, 64}) {
      Case start(type, 1, 7, 3, half, /*shared=*/true);
      start.args.positions = int64_t{1} << 40;  // all rows belong to the first sequence
      expect_gpu_equals_ref(start, /*in_place=*/false);
    }
  }
}
#endif

}  // namespace
}  // namespace lft::rope_test
