// FP8 layers: codes as converted by LibTorch, products against float64, a layer within its
// quantisation error, non-finite values, memory.
#include <ATen/ATen.h>

#include <cmath>

#include "models/dense_twin.h"
#include "models/ops/core/precision.h"
#include "models/ops/linear/linear.h"
#include "models/ops/weight/fp8.h"
#include "models/tiny.h"

namespace lft::test::fp8_test {
namespace {

at::Tensor wide(const Fp8Matrix& matrix) {
  return matrix.codes_mk.to(at::kDouble) * matrix.scales_m1.to(at::kDouble);
}

/// Rows of very different magnitudes.
at::Tensor uneven(int64_t rows, int64_t cols, uint64_t seed) {
  at::manual_seed(seed);
  return at::randn({rows, cols}) * at::pow(10.0, at::rand({rows, 1}) * 6 - 3);
}

TEST(Fp8Rows, AreLibTorchsConversionOfTheScaledRows) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
    for (const int64_t cols : {1, 16, 300}) {
      const at::Tensor x = uneven(40, cols, 3).to(dtype),
                       most = x.to(at::kFloat).abs().amax(1, /*keepdim=*/true);
      const Fp8Matrix got = quantize_rows(x);
      EXPECT_EQ(got.codes_mk.scalar_type(), at::kFloat8_e4m3fn);
      const at::Tensor want =
          (x.to(at::kFloat) * (at::full_like(most, 448) / most)).to(at::kFloat8_e4m3fn);
      EXPECT_TRUE(at::equal(got.codes_mk.view(at::kByte), want.view(at::kByte)))
          << dtype << " " << cols;
      EXPECT_TRUE(at::equal(got.scales_m1, most / 448));
    }
  }
}

TEST(Fp8Rows, TakeAViewAsItsCopy) {
  const at::Tensor x = uneven(48, 80, 5);
  EXPECT_TRUE(at::equal(wide(quantize_rows(x.t())), wide(quantize_rows(x.t().contiguous()))));
  EXPECT_EQ(quantize_rows(at::zeros({0, 16})).codes_mk.sizes(), at::IntArrayRef({0, 16}));
}

/// A float32 sum of k products has an error of at most k roundings of the sum of magnitudes; then
/// two scales and the result are rounded.
TEST(Fp8Product, IsTheSumOfItsCodesRoundedOnce) {
  for (const auto& [m, n, k] : std::vector<std::tuple<int64_t, int64_t, int64_t>>{
           {1, 16, 16}, {5, 48, 80}, {33, 64, 1024}}) {
    const Fp8Matrix a = quantize_rows(uneven(m, k, 7)), b = quantize_rows(uneven(n, k, 8));
    const at::Tensor exact = at::mm(wide(a), wide(b).t()),
                     magnitudes = at::mm(wide(a).abs(), wide(b).abs().t());
    for (const auto& [dtype, rounding] :
         {std::pair{at::kBFloat16, 0x1p-8}, std::pair{at::kHalf, 0x1p-11}}) {
      const at::Tensor y = fp8_product(a, b, dtype);
      EXPECT_EQ(y.scalar_type(), dtype);
      const at::Tensor bound = exact.abs() * rounding * 1.01 +
                               magnitudes * (static_cast<double>(k + 3) * 0x1p-24) +
                               (dtype == at::kHalf ? 0x1p-25 : 0);
      const at::Tensor finite = exact.abs() < 65000;  // FP16 overflows beyond
      const at::Tensor error = (y.to(at::kDouble) - exact).abs();
      EXPECT_TRUE(at::all(at::logical_or(error <= bound, finite.logical_not())).item<bool>())
          << m << " " << n << " " << k;
    }
  }
}

at::Tensor weights(int64_t out, int64_t in) { return uneven(out, in, 5) * 0.1; }

TEST(Fp8Weight, IsHeldTwiceFromTheOriginalInTwoBytesAnElement) {
  const at::Tensor w = weights(96, 160);
  const auto storage = quantize_fp8(w, at::kCPU);
  EXPECT_TRUE(at::equal(wide(storage->weight_oi), wide(quantize_rows(w))));
  EXPECT_TRUE(at::equal(wide(storage->transposed_io), wide(quantize_rows(w.t()))));
  EXPECT_FALSE(at::equal(wide(storage->transposed_io).t(), wide(storage->weight_oi)));
  EXPECT_TRUE(at::equal(storage->dense(at::kFloat), wide(storage->weight_oi).to(at::kFloat)));
  int64_t bytes = 0;
  for (const auto& [name, part] : storage->parts()) bytes += static_cast<int64_t>(part.nbytes());
  EXPECT_EQ(bytes, 2 * 96 * 160 + 4 * (96 + 160));
}

/// Maximum distance of each number from its decoded code: a sixteenth of it (half a step of
/// three bits), or half of the smallest step.
at::Tensor spread(const at::Tensor& x) {
  const at::Tensor most = x.abs().amax(1, /*keepdim=*/true);
  return at::maximum(x.abs() / 16, most / 448 * 0x1p-10) * (1 + 1e-5);
}

/// |x w - x' w'| for products of numbers with these errors, and the result's roundings.
at::Tensor product_bound(const at::Tensor& a_mk, const at::Tensor& b_nk, double rounding) {
  const at::Tensor a = a_mk.abs(), b = b_nk.abs(), da = spread(a_mk), db = spread(b_nk);
  const at::Tensor moved = at::mm(a, db.t()) + at::mm(da, b.t()) + at::mm(da, db.t());
  return moved + (at::mm(a, b.t()) + moved) * (rounding + 1e-4);
}

struct Result {
  at::Tensor y, dx, da, db, x, dy;
};

Result run(const Weight& weight, at::ScalarType compute) {
  at::manual_seed(9);
  const ComputeDtypeGuard dtype(compute);
  const at::Tensor x = at::randn({4, 7, weight.in()}).to(compute).requires_grad_();
  const at::Tensor a = at::randn({3, weight.in()}).requires_grad_(),
                   b = at::zeros({weight.out(), 3}).requires_grad_();
  const at::Tensor y = linear(x, weight, at::Tensor(), {a, b, 0.5, {}}),
                   dy = at::randn(y.sizes()).to(y.scalar_type()) * 1e-6;
  y.backward(dy);
  return {y.detach(), x.grad(), a.grad(), b.grad(), x.detach(), dy};
}

/// B is zero, so that the base weight alone gives y and dx.
TEST(Fp8Weight, ALayerIsWithinTheErrorOfItsCodesInBothPasses) {
  const at::Tensor w = weights(48, 80).to(at::kDouble);
  for (const auto& [compute, rounding] :
       {std::pair{at::kBFloat16, 0x1p-8}, std::pair{at::kHalf, 0x1p-11}}) {
    const Result got =
        run(Weight(quantize(w.to(at::kFloat), BaseStorage::kFp8, at::kCPU)), compute);
    const at::Tensor x = got.x.to(at::kDouble).view({-1, 80}),
                     dy = got.dy.to(at::kDouble).view({-1, 48});
    const at::Tensor y = at::mm(x, w.t()), dx = at::mm(dy, w);
    const double least =
        compute == at::kHalf ? 0x1p-24 : 0;  // FP16's smallest step, for gradients of a millionth
    EXPECT_TRUE(at::all((got.y.to(at::kDouble).view({-1, 48}) - y).abs() <=
                        product_bound(x, w, rounding) + least)
                    .item<bool>());
    EXPECT_TRUE(at::all((got.dx.to(at::kDouble).view({-1, 80}) - dx).abs() <=
                        product_bound(dy, w.t().contiguous(), rounding) + least)
                    .item<bool>());
    EXPECT_GT(((got.y.to(at::kDouble).view({-1, 48}) - y).norm() / y.norm()).item<double>(),
              0.01);  // the error shows that it is quantised
  }
}

TEST(Fp8Weight, GradientsOfTheUpdateAreThoseOfADenseLayer) {
  const at::Tensor w = weights(48, 80);
  const Result got = run(Weight(quantize(w, BaseStorage::kFp8, at::kCPU)), at::kBFloat16),
               want = run(Weight(w), at::kBFloat16);
  EXPECT_TRUE(at::equal(got.da, want.da));
  EXPECT_TRUE(at::equal(got.db, want.db));
}

TEST(Fp8Weight, InFloat32OnlyTheWeightIsRounded) {
  const auto storage = quantize_fp8(weights(48, 80), at::kCPU);
  const Result got = run(Weight(storage), at::kFloat),
               want = run(Weight(storage->dense(at::kFloat)), at::kFloat);
  EXPECT_TRUE(at::equal(got.y, want.y));
  EXPECT_TRUE(at::equal(got.dx, want.dx));
}

TEST(Fp8Weight, ABiasIsAdded) {
  const ComputeDtypeGuard dtype(at::kBFloat16);
  const Weight weight(quantize(weights(48, 80), BaseStorage::kFp8, at::kCPU));
  const at::Tensor x = uneven(6, 80, 4).to(at::kBFloat16), bias = uneven(48, 1, 6).flatten();
  EXPECT_TRUE(
      at::equal(linear(x, weight, bias), linear(x, weight, at::Tensor()) + bias.to(at::kBFloat16)));
}

/// A token's row has its own scale, independent of the rest of the batch.
TEST(Fp8Weight, ATokenDoesNotSeeTheOthers) {
  const ComputeDtypeGuard dtype(at::kBFloat16);
  const Weight weight(quantize(weights(48, 80), BaseStorage::kFp8, at::kCPU));
  const at::Tensor x = uneven(6, 80, 4).to(at::kBFloat16), all = linear(x, weight, at::Tensor());
  for (int64_t t = 0; t < 6; ++t) {
    const at::Tensor alone = linear(x.narrow(0, t, 1), weight, at::Tensor());
    const double error = (alone - all.narrow(0, t, 1)).abs().max().item<double>(),
                 most = alone.abs().max().item<double>();
    EXPECT_LE(error, 0x1p-7 * most);  // sums in another order
  }
}

TEST(Fp8Weight, WhatIsNotFiniteStaysSo) {
  const Weight weight(quantize(weights(48, 80), BaseStorage::kFp8, at::kCPU));
  for (const at::ScalarType compute : {at::kBFloat16, at::kHalf}) {
    const ComputeDtypeGuard dtype(compute);
    for (const double bad : {HUGE_VAL, -HUGE_VAL, std::nan("")}) {
      at::Tensor x = uneven(6, 80, 4).to(compute), dy = uneven(6, 48, 5).to(compute);
      const at::Tensor clean = linear(x, weight, at::Tensor()),
                       clean_dx = weight_product_backward(dy, weight);
      x[2][17] = bad;
      dy[3][40] = bad;
      const at::Tensor y = linear(x, weight, at::Tensor()),
                       dx = weight_product_backward(dy, weight);
      for (int64_t t = 0; t < 6; ++t) {
        EXPECT_EQ(at::isfinite(y[t]).any().item<bool>(), t != 2);
        EXPECT_EQ(at::isfinite(dx[t]).any().item<bool>(), t != 3);
        EXPECT_TRUE(t == 2 || at::equal(y[t], clean[t]));
        EXPECT_TRUE(t == 3 || at::equal(dx[t], clean_dx[t]));
      }
    }
  }
}

TEST(Fp8Weight, AnFp16ResultBeyondItsRangeIsInfinite) {
  const ComputeDtypeGuard dtype(at::kHalf);
  const Weight weight(quantize(at::full({16, 64}, 100.0), BaseStorage::kFp8, at::kCPU));
  EXPECT_TRUE(at::isinf(linear(at::full({1, 64}, 100.0, at::kHalf), weight, at::Tensor()))
                  .all()
                  .item<bool>());
  EXPECT_TRUE(at::isfinite(linear(at::full({1, 64}, 1.0, at::kHalf), weight, at::Tensor()))
                  .all()
                  .item<bool>());
}

TEST(Fp8Weight, ShapesThatAGpuCannotTakeAreRefused) {
  for (const auto& [out, in] : std::vector<std::pair<int64_t, int64_t>>{{40, 64}, {64, 40}}) {
    EXPECT_THROW(quantize(at::randn({out, in}), BaseStorage::kFp8, at::kCPU), Error);
  }
}

TEST(Fp8Weight, AModelTrainsAsItsDenseTwin) {
  expect_trains_as_its_dense_twin(BaseStorage::kFp8);
  expect_trains_as_its_dense_twin(BaseStorage::kFp8, tiny_expert_config());
}

}  // namespace
}  // namespace lft::test::fp8_test
