// RMSNorm: the reference against the formula and finite differences, the kernel against the
// reference.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "kernels/arena.h"
#include "kernels/rms_norm/rms_norm.h"

namespace lft::rms_norm_test {
namespace {

struct Types {
  FloatType x, y, w;
};
const std::vector<Types> kTypes = {{FloatType::kF32, FloatType::kF32, FloatType::kF32},
                                   {FloatType::kBF16, FloatType::kBF16, FloatType::kBF16},
                                   {FloatType::kF32, FloatType::kBF16, FloatType::kBF16},
                                   {FloatType::kBF16, FloatType::kF32, FloatType::kF32},
                                   {FloatType::kF16, FloatType::kF16, FloatType::kF32},
                                   {FloatType::kF16, FloatType::kF16, FloatType::kF16}};

/// Relative rounding of a stored value of the type: half a unit in the last place.
double unit(FloatType type) {
  return type == FloatType::kF32 ? 0x1p-24 : type == FloatType::kBF16 ? 0x1p-8 : 0x1p-11;
}

/// The arrays of one call in an arena, so that it can be moved to a device.
struct Case {
  Case(Types types, int64_t rows, int64_t cols, bool residual, int64_t misaligned, uint32_t seed)
      : types(types), rows(rows), cols(cols) {
    const int64_t n = rows * cols;
    x = arena.add(types.x, n, misaligned);
    delta = arena.add(types.x, n, misaligned);
    sum = arena.add(types.x, n);
    w = arena.add(types.w, cols, misaligned);
    y = arena.add(types.y, n, misaligned);
    dy = arena.add(types.y, n);
    dsum = arena.add(types.x, n);
    dx = arena.add(types.x, n);
    rstd = arena.add(FloatType::kF32, rows);
    for (const size_t a : {x, delta, w, dy, dsum}) arena.fill_normal(a, seed += 1, 1);
    with_residual = residual;
  }
  RmsNormArgs args(uint8_t* base, bool backward) const {
    const auto at = [&](size_t a) { return base + arena.arrays()[a].offset; };
    RmsNormArgs out{.rows = rows,
                    .cols = cols,
                    .eps = 1e-5f,
                    .x_type = types.x,
                    .y_type = types.y,
                    .w_type = types.w};
    out.x = at(backward && with_residual ? sum : x);
    out.w = at(w);
    out.rstd = reinterpret_cast<float*>(at(rstd));
    return out;
  }
  /// forward(args, delta, sum, y), then backward(args, dy, dsum, dx).
  template <class Forward, class Backward>
  void run(uint8_t* base, const Forward& forward, const Backward& backward) const {
    const auto at = [&](size_t a) { return static_cast<void*>(base + arena.arrays()[a].offset); };
    forward(args(base, false), with_residual ? at(delta) : nullptr,
            with_residual ? at(sum) : nullptr, at(y));
    backward(args(base, true), at(dy), with_residual ? at(dsum) : nullptr, at(dx));
  }

  Types types;
  int64_t rows, cols;
  bool with_residual = false;
  test::Arena arena;
  size_t x, delta, sum, w, y, dy, dsum, dx, rstd;
};

void run_ref(Case& c) { c.run(c.arena.bytes().data(), rms_norm_ref, rms_norm_backward_ref); }

TEST(RmsNormRef, FollowsTheFormula) {
  Case c(kTypes[0], 1, 4, /*residual=*/false, 0, 1);
  const std::vector<float> x = {1, -2, 3, -4}, w = {1, 2, 0.5f, -1};
  for (int i = 0; i < 4; ++i) c.arena.set(c.x, i, x[i]), c.arena.set(c.w, i, w[i]);
  run_ref(c);
  const double rstd = 1 / std::sqrt(7.5 + 1e-5f);  // mean of 1, 4, 9, 16
  EXPECT_FLOAT_EQ(c.arena.get(c.rstd, 0), static_cast<float>(rstd));
  for (int i = 0; i < 4; ++i)
    EXPECT_FLOAT_EQ(c.arena.get(c.y, i), static_cast<float>(w[i] * x[i] * rstd));
}

/// Central differences of sum(dy * y(s)) + sum(dsum * s) in s. Their error: h^2 / 6 of the third
/// derivative (below 10 here), and float32 rounding of y, 2^-24 of terms below 4, over 2 h.
TEST(RmsNormRef, BackwardEqualsFiniteDifferences) {
  Case c(kTypes[0], 2, 5, /*residual=*/true, 0, 3);
  run_ref(c);
  const std::vector<float> dx = c.arena.values(c.dx);
  constexpr double kStep = 1.0 / 256;
  for (int i = 0; i < 10; ++i) {
    const auto value = [&](float shift) {
      Case moved = c;
      moved.arena.set(moved.delta, i, c.arena.get(c.delta, i) + shift);
      run_ref(moved);
      double total = 0;
      for (int k = 0; k < 10; ++k) {
        total += static_cast<double>(c.arena.get(c.dy, k)) * moved.arena.get(moved.y, k) +
                 static_cast<double>(c.arena.get(c.dsum, k)) * moved.arena.get(moved.sum, k);
      }
      return total;
    };
    EXPECT_NEAR(dx[i], (value(kStep) - value(-kStep)) / (2 * kStep), 2e-3) << i;
  }
}

TEST(RmsNormRef, ANonFiniteElementSpoilsItsRowOnly) {
  Case c(kTypes[0], 3, 4, /*residual=*/false, 0, 5);
  c.arena.set(c.x, 5, std::numeric_limits<float>::quiet_NaN());
  run_ref(c);
  for (int i = 0; i < 12; ++i) EXPECT_EQ(std::isfinite(c.arena.get(c.y, i)), i / 4 != 1) << i;
}

#ifdef LFT_HAVE_CUDA

void run_gpu(Case& c) {
  test::DeviceArray<uint8_t> bytes(c.arena.bytes());
  ASSERT_TRUE(bytes.ok());
  c.run(
      bytes.data(),
      [](const RmsNormArgs& args, const void* delta, void* sum, void* y) {
        rms_norm(args, delta, sum, y, nullptr);
      },
      [](const RmsNormArgs& args, const void* dy, const void* dsum, void* dx) {
        rms_norm_backward(args, dy, dsum, dx, nullptr);
      });
  c.arena.bytes() = bytes.to_host();
}

/// float32 sums of `cols` terms differ from exact ones by at most cols units of the sum of their
/// absolute values (less in practice: a thread's eight, its packs, a tree over the warp and one
/// over the warps: the depth is 19, and one more for each 4096 columns beyond 8192); then a few
/// roundings, and that of the stored type.
void expect_gpu_equals_ref(const Case& start) {
  Case want = start, got = start, again = start;
  run_ref(want);
  run_gpu(got);
  run_gpu(again);
  EXPECT_EQ(got.arena.bytes(), again.arena.bytes());
  const double terms = static_cast<double>(start.cols) / 2048 * 8 + 16;
  for (int64_t r = 0; r < start.rows; ++r) {
    const double rstd = want.arena.get(want.rstd, r);
    EXPECT_NEAR(got.arena.get(got.rstd, r), rstd, (terms + 4) * 0x1p-24 * rstd) << r;
    const size_t normed = start.with_residual ? want.sum : want.x;
    double dots = 0;
    for (int64_t i = r * start.cols; i < (r + 1) * start.cols; ++i) {
      dots += std::abs(static_cast<double>(want.arena.get(want.w, i % start.cols)) *
                       want.arena.get(want.dy, i) * want.arena.get(normed, i));
    }
    for (int64_t i = r * start.cols; i < (r + 1) * start.cols; ++i) {
      if (start.with_residual) {
        ASSERT_EQ(got.arena.get(got.sum, i), want.arena.get(want.sum, i)) << i;
      }
      const double y = std::abs(want.arena.get(want.y, i));
      ASSERT_NEAR(got.arena.get(got.y, i), want.arena.get(want.y, i),
                  y * (2 * unit(start.types.y) + (terms + 6) * 0x1p-24))
          << i;
      const double s = std::abs(want.arena.get(normed, i)),
                   weighted = std::abs(want.arena.get(want.w, i % start.cols) *
                                       want.arena.get(want.dy, i));
      const double shrink = rstd * rstd * dots / static_cast<double>(start.cols);
      const double size = rstd * (weighted + s * shrink) +
                          (start.with_residual ? std::abs(want.arena.get(want.dsum, i)) : 0);
      const double dx = std::abs(want.arena.get(want.dx, i));
      ASSERT_NEAR(got.arena.get(got.dx, i), want.arena.get(want.dx, i),
                  dx * 2 * unit(start.types.x) + size * (2 * terms + 12) * 0x1p-24)
          << i;
    }
  }
}

TEST(RmsNormGpu, EqualsTheReferenceOverSizesTypesAndAlignment) {
  if (!test::has_gpu()) GTEST_SKIP() << "no GPU";
  uint32_t seed = 7;
  for (const Types& types : kTypes) {
    for (const int64_t cols : {1, 7, 8, 64, 2048, 4096}) {
      for (const bool residual : {false, true})
        expect_gpu_equals_ref(Case(types, 3, cols, residual, cols == 64 ? 1 : 0, seed += 10));
    }
  }
}

/// FP16 is combined with FP16 only. In vectors, and in single elements.
TEST(RmsNormGpu, EqualsTheReferenceForEveryCombinationOfTypes) {
  if (!test::has_gpu()) GTEST_SKIP() << "no GPU";
  constexpr FloatType kAll[] = {FloatType::kF32, FloatType::kBF16, FloatType::kF16};
  uint32_t seed = 5000;
  for (const FloatType x : kAll) {
    for (const FloatType y : kAll) {
      if (x != y && (x == FloatType::kF16 || y == FloatType::kF16)) continue;
      for (const FloatType w : kAll) {
        for (const int64_t misaligned : {0, 1})
          expect_gpu_equals_ref(Case({x, y, w}, 2, 64, /*residual=*/true, misaligned, seed += 10));
      }
    }
  }
}

/// Several rows per warp, one warp per row, several rows per block, one block per row with any
/// number of warps, rows that do not fit into registers; and sizes in between.
TEST(RmsNormGpu, EqualsTheReferenceAtEveryWidth) {
  if (!test::has_gpu()) GTEST_SKIP() << "no GPU";
  uint32_t seed = 1000;
  for (const int64_t cols : {16,   128,  136,  256,  512,  520,  1000, 1024, 1152,  1536,
                             2047, 2056, 3072, 5120, 8184, 8192, 8193, 8200, 16384, 20000}) {
    for (const bool residual : {false, true})
      expect_gpu_equals_ref(Case(kTypes[1], 5, cols, residual, 0, seed += 10));
  }
}

/// The result of a call for one row of `start` where it is row `row` of `rows`, with the arrays
/// `misaligned` elements after a multiple of 16 bytes: rstd, sum, y, dx.
std::vector<float> one_row(const Case& start, int64_t row, int64_t rows, int64_t misaligned) {
  const int64_t cols = start.cols;
  Case moved(start.types, rows, cols, start.with_residual, misaligned, 12345);
  for (const size_t array : {start.x, start.delta, start.dy, start.dsum}) {
    for (int64_t i = 0; i < cols; ++i)
      moved.arena.set(array, row * cols + i, start.arena.get(array, i));
  }
  for (int64_t i = 0; i < cols; ++i) moved.arena.set(moved.w, i, start.arena.get(start.w, i));
  run_gpu(moved);
  std::vector<float> out = {moved.arena.get(moved.rstd, row)};
  for (const size_t array : {moved.sum, moved.y, moved.dx}) {
    for (int64_t i = 0; i < cols; ++i) out.push_back(moved.arena.get(array, row * cols + i));
  }
  return out;
}

TEST(RmsNormGpu, ARowDoesNotDependOnTheRowsBesideItNorOnTheAlignment) {
  if (!test::has_gpu()) GTEST_SKIP() << "no GPU";
  for (const int64_t cols : {8, 128, 200, 1024, 2560, 4096, 9000}) {
    const Case start(kTypes[1], 1, cols, /*residual=*/true, 0, 77);
    const std::vector<float> alone = one_row(start, 0, 1, 0);
    EXPECT_EQ(one_row(start, 36, 40, 0), alone) << cols;
    EXPECT_EQ(one_row(start, 1, 3, 1), alone) << cols;
  }
}

TEST(RmsNormGpu, TheGradientBesideItMayBeOverwritten) {
  if (!test::has_gpu()) GTEST_SKIP() << "no GPU";
  for (const int64_t cols : {64, 1000, 4096, 9000}) {
    Case want(kTypes[1], 3, cols, /*residual=*/true, 0, 55);
    Case got = want;
    got.dx = got.dsum;
    run_gpu(want);
    run_gpu(got);
    EXPECT_EQ(got.arena.values(got.dsum), want.arena.values(want.dx)) << cols;
  }
}

TEST(RmsNormGpu, MoreRowsThanBlocks) {
  if (!test::has_gpu()) GTEST_SKIP() << "no GPU";
  expect_gpu_equals_ref(Case(kTypes[1], 200, 16, /*residual=*/true, 0, 99));
}

#endif

}  // namespace
}  // namespace lft::rms_norm_test
