// Products against double, at sizes that cover every implementation on some processor.
#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>

#include <cmath>

#include "models/ops/core/few_rows.h"
#include "models/ops/core/gemm.h"

namespace lft::gemm_test {
using namespace lft::ops;
namespace {

at::Tensor normal(at::IntArrayRef shape, uint64_t seed) {
  return at::randn(shape, at::detail::createCPUGenerator(seed), at::kFloat);
}

/// A float32 sum of k products in any order: a random walk of 2^-24 of the sum's magnitude per
/// term, four deviations, and one rounding of the result per further operation.
void expect_product(const at::Tensor& got, const at::Tensor& want, int64_t k, const char* what) {
  const double typical = want.norm().item<double>() / std::sqrt(static_cast<double>(want.numel()));
  const double bound = 4 * 0x1p-24 * (std::sqrt(static_cast<double>(k)) + 2) * typical;
  const at::Tensor error = (got.to(at::kDouble) - want).abs();
  EXPECT_LE(error.norm().item<double>(), bound * std::sqrt(static_cast<double>(want.numel())))
      << what;
  EXPECT_LE(error.max().item<double>(), 8 * bound) << what;
}

class Products : public ::testing::TestWithParam<std::tuple<int64_t, int64_t, int64_t>> {};

TEST_P(Products, InFloat32AreThoseOfDouble) {
  const auto [m, k, n] = GetParam();
  const at::Tensor a = normal({m, k}, 1), rows = normal({k, n}, 2), y = normal({m, n}, 3),
                   bias = normal({n}, 4);
  const at::Tensor columns = rows.t().contiguous().t();            // a weight's layout
  const at::Tensor wider = normal({m, k + 3}, 5).narrow(1, 1, k);  // columns of a wider matrix
  for (const at::Tensor& b : {rows, columns}) {
    for (const at::Tensor& left : {a, wider}) {
      const at::Tensor exact = at::mm(left.to(at::kDouble), b.to(at::kDouble));
      expect_product(product(left, b), exact, k, "product");
      expect_product(affine(bias, left, b), exact + bias, k, "affine");
      at::Tensor into = at::empty({m, n + 2}).narrow(1, 2, n), added = y.clone(), sum = y.clone();
      product_into(into, left, b);
      expect_product(into, exact, k, "product_into");
      add_product(added, left, b, 0.5);
      expect_product(added, y + 0.5 * exact, k, "add_product");
      accumulate(sum, left, b);
      expect_product(sum, y + exact, k, "accumulate");
    }
  }
  EXPECT_TRUE(product(a, rows).equal(product(a, rows)));  // the same bits again
}

INSTANTIATE_TEST_SUITE_P(Shapes, Products,
                         ::testing::Values(std::tuple{1, 7, 5}, std::tuple{33, 65, 17},
                                           std::tuple{300, 512, 257}, std::tuple{128, 4096, 96}));

TEST(FewRows, AreTakenUnderAGuardWhereTheyFit) {
  const at::Tensor a = normal({8, 48}, 1), w_nk = normal({20, 48}, 2), b = w_nk.t();
  EXPECT_FALSE(takes_few_rows(a, b));
  const FewRowsGuard guard;
  EXPECT_TRUE(takes_few_rows(a, b));
  EXPECT_TRUE(takes_few_rows(normal({8, 96}, 3).narrow(1, 5, 48), b));
  EXPECT_FALSE(takes_few_rows(a, b.contiguous()));
  EXPECT_FALSE(takes_few_rows(normal({48, 8}, 3).t(), b));
  EXPECT_FALSE(takes_few_rows(normal({1000, 48}, 3), b));
  EXPECT_FALSE(takes_few_rows(a, b.to(at::kBFloat16)));
  EXPECT_FALSE(takes_few_rows(a.to(at::kDouble), b.to(at::kDouble)));
  EXPECT_FALSE(takes_few_rows(a.to(at::kMeta), b.to(at::kMeta)));
}

class FewRowsProducts : public ::testing::TestWithParam<std::tuple<int64_t, int64_t, int64_t>> {};

TEST_P(FewRowsProducts, AreThoseOfDoubleAndOfEachRowAlone) {
  const FewRowsGuard guard;
  const auto [m, k, n] = GetParam();
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    const at::Tensor a = normal({m, k + 3}, 1).to(type).narrow(1, 1, k),
                     b = normal({n, k + 2}, 2).to(type).narrow(1, 1, k).t(),
                     y = normal({m, n + 2}, 3).to(type).narrow(1, 1, n),
                     bias = normal({n}, 4).to(type);
    ASSERT_TRUE(takes_few_rows(a, b));
    const at::Tensor exact = at::mm(a.to(at::kDouble), b.to(at::kDouble));
    // A 16-bit result is the float32 sum rounded once: half a step of 2^-8 or 2^-11 of itself,
    // plus the noise of the sum.
    const double step = type == at::kFloat ? 0 : type == at::kHalf ? 0x1p-11 : 0x1p-8;
    const auto check = [&](const at::Tensor& got, const at::Tensor& want, const char* what) {
      ASSERT_EQ(got.scalar_type(), type);
      if (type == at::kFloat) return expect_product(got, want, k, what);
      const at::Tensor error = (got.to(at::kDouble) - want).abs();
      const at::Tensor bound = step * want.abs() + 1e-5 * std::sqrt(static_cast<double>(k));
      EXPECT_TRUE((error <= bound).all().item<bool>()) << what;
    };
    const at::Tensor whole = product(a, b), shifted = affine(bias, a, b);
    check(whole, exact, "product");
    check(shifted, exact + bias.to(at::kDouble), "affine");
    at::Tensor added = y.clone(), inside = at::zeros({m, n + 2}, y.options());
    at::Tensor columns = inside.narrow(1, 1, n).copy_(y);
    add_product(added, a, b, 0.5);
    add_product(columns, a, b, 0.5);
    check(added, y.to(at::kDouble) + 0.5 * exact, "add_product");
    EXPECT_TRUE(columns.equal(added));
    EXPECT_EQ(inside.select(1, 0).abs().sum().item<double>(), 0);
    EXPECT_EQ(inside.select(1, n + 1).abs().sum().item<double>(), 0);
    for (int64_t row = 0; row < m; ++row)
      EXPECT_TRUE(product(a.narrow(0, row, 1), b).equal(whole.narrow(0, row, 1))) << row;
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, FewRowsProducts,
                         ::testing::Values(std::tuple{1, 576, 1537}, std::tuple{8, 577, 192},
                                           std::tuple{7, 5, 3}, std::tuple{32, 16, 576},
                                           std::tuple{6, 1536, 1}));

#if defined(__x86_64__)
// The loop for AVX2 adds the exact product -(1 + 2^-12)^2 to the rounded one, which leaves -2^-24;
// the loop for any x86-64 rounds both.
TEST(FewRowsLoop, IsTheOneForThisProcessor) {
  if (!__builtin_cpu_supports("x86-64-v3")) GTEST_SKIP() << "this processor has no AVX2";
  at::Tensor a = at::zeros({1, 32}), b = at::zeros({32, 1});
  a[0][0] = b[0][0] = b[16][0] = 1 + 0x1p-12;
  a[0][16] = -1 - 0x1p-12;
  const FewRowsGuard few_rows;
  ASSERT_TRUE(takes_few_rows(a, b));
  EXPECT_EQ(product(a, b).item<float>(), -0x1p-24f);
}
#endif

TEST(ProductsOf, AMatrixWithANanAreNan) {
  at::Tensor a = normal({256, 512}, 6);
  a[3][7] = NAN;
  const at::Tensor y = product(a, normal({512, 256}, 7));
  EXPECT_TRUE(y[3].isnan().all().item<bool>());
  EXPECT_EQ(y.isnan().sum().item<int64_t>(), 256);
}

}  // namespace
}  // namespace lft::gemm_test
