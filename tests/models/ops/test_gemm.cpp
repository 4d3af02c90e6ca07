// Products against double, at sizes that every way of computing them takes on some processor.
#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>

#include <cmath>

#include "models/ops/core/gemm.h"

namespace lft::gemm_test {
using namespace lft::ops;
namespace {

at::Tensor normal(at::IntArrayRef shape, uint64_t seed) {
  return at::randn(shape, at::detail::createCPUGenerator(seed), at::kFloat);
}

/// A float32 sum of k products in any order: a random walk of 2^-24 of the sum's size a term, four
/// deviations, and one rounding of the result for each further operation.
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

TEST(ProductsOf, AMatrixWithANanAreNan) {
  at::Tensor a = normal({256, 512}, 6);
  a[3][7] = NAN;
  const at::Tensor y = product(a, normal({512, 256}, 7));
  EXPECT_TRUE(y[3].isnan().all().item<bool>());
  EXPECT_EQ(y.isnan().sum().item<int64_t>(), 256);
}

}  // namespace
}  // namespace lft::gemm_test
