// The linear layer's autograd function with and without a low-rank update, against plain ops and
// finite differences.
#include "models/ops/core/precision.h"
#include "models/ops/elementwise/dropout.h"
#include "models/ops/linear/linear.h"
#include "models/tiny.h"

namespace lft::test::linear_test {
namespace {

at::Tensor leaf(const at::Tensor& x) { return x.detach().clone().set_requires_grad(true); }

struct Leaves {
  at::Tensor x = leaf(fill_by_hash("x", {2, 5, 12})), up = leaf(fill_by_hash("up", {2, 5, 12}));
  at::Tensor w = leaf(fill_by_hash("w", {9, 12})), bias = leaf(fill_by_hash("bias", {9}));
  at::Tensor a = leaf(fill_by_hash("a", {3, 12})), b = leaf(fill_by_hash("b", {9, 3}));
  std::vector<at::Tensor> all() const { return {x, up, w, bias, a, b}; }
};

at::Tensor plain(const Leaves& t, bool gated, bool adapted, double scale,
                 const at::Tensor& factors) {
  const at::Tensor input = gated ? at::silu(t.x) * t.up : t.x;
  const at::Tensor y = at::linear(input, t.w, t.bias);
  return adapted ? y + scale * at::linear(at::linear(input * factors, t.a), t.b) : y;
}

void expect_gradients(const Leaves& got, const Leaves& want, double tolerance) {
  for (size_t i = 0; i < got.all().size(); ++i) {
    const at::Tensor g = got.all()[i].grad(), w = want.all()[i].grad();
    ASSERT_EQ(g.defined(), w.defined()) << i;
    if (w.defined()) {
      EXPECT_LT(relative_error(g, w), tolerance) << i;
    }
  }
}

TEST(Linear, ValuesAndGradientsAreThoseOfPlainOps) {
  for (const bool gated : {false, true}) {
    for (const bool adapted : {false, true}) {
      for (const double p : {0.0, 0.4}) {
        const DropoutGuard position({3, 1, 0});
        const DropoutMask mask = dropout_mask(p, "layer");
        Leaves t, u;
        const LowRank update = adapted ? LowRank{t.a, t.b, 1.75, mask} : LowRank{};
        const at::Tensor got =
            gated ? linear_gated(t.x, t.up, t.w, t.bias, update) : linear(t.x, t.w, t.bias, update);
        const at::Tensor want =
            plain(u, gated, adapted, 1.75, dropout(at::ones({10, 12}), mask).view({2, 5, 12}));
        EXPECT_LT(max_abs_diff(got, want), 1e-5);
        const at::Tensor upstream = fill_by_hash("upstream", got.sizes());
        got.backward(upstream);
        want.backward(upstream);
        expect_gradients(t, u, 1e-5);
      }
    }
  }
}

TEST(Linear, AGateOfGelu) {
  const DropoutGuard position({3, 1, 0});
  for (const double p : {0.0, 0.4}) {
    const DropoutMask mask = dropout_mask(p, "layer");
    Leaves t, u;
    const at::Tensor got =
        linear_gated(t.x, t.up, t.w, t.bias, LowRank{t.a, t.b, 1.75, mask}, Gate::kGelu);
    const at::Tensor input = at::gelu(u.x, "tanh") * u.up,
                     factors = dropout(at::ones({10, 12}), mask).view({2, 5, 12});
    const at::Tensor want =
        at::linear(input, u.w, u.bias) + 1.75 * at::linear(at::linear(input * factors, u.a), u.b);
    EXPECT_LT(max_abs_diff(got, want), 1e-5);
    const at::Tensor upstream = fill_by_hash("upstream", got.sizes());
    got.backward(upstream);
    want.backward(upstream);
    expect_gradients(t, u, 1e-5);
  }
}

/// With frozen W the backward pass computes only the dropped product.
TEST(Linear, FrozenWeightBehindAGatedInputWithDropout) {
  const DropoutGuard position({3, 1, 0});
  const DropoutMask mask = dropout_mask(0.4, "layer");
  Leaves t, u;
  for (const Leaves* leaves : {&t, &u}) {
    for (at::Tensor frozen : {leaves->w, leaves->bias}) frozen.set_requires_grad(false);
  }
  const at::Tensor got = linear_gated(t.x, t.up, t.w, t.bias, LowRank{t.a, t.b, 1.75, mask});
  const at::Tensor factors = dropout(at::ones({10, 12}), mask).view({2, 5, 12});
  const at::Tensor want = plain(u, /*gated=*/true, /*adapted=*/true, 1.75, factors);
  EXPECT_LT(max_abs_diff(got, want), 1e-5);
  const at::Tensor upstream = fill_by_hash("upstream", got.sizes());
  got.backward(upstream);
  want.backward(upstream);
  EXPECT_TRUE(t.a.grad().defined() && !t.w.grad().defined());
  expect_gradients(t, u, 1e-5);
}

TEST(Linear, FiniteDifferences) {
  Leaves t;
  const auto value = [&] {
    return (linear_gated(t.x, t.up, t.w, t.bias, {t.a, t.b, 0.5, {}}) *
            fill_by_hash("upstream", {2, 5, 9}))
        .sum();
  };
  value().backward();
  const at::NoGradGuard no_grad;
  for (const at::Tensor& parameter : t.all()) {
    const at::Tensor direction = fill_by_hash("direction", parameter.sizes());
    const double step = 1e-2;
    parameter.add_(direction, step);
    const double above = value().item<double>();
    parameter.sub_(direction, 2 * step);
    const double below = value().item<double>();
    parameter.add_(direction, step);
    const double want = (above - below) / (2 * step),
                 got = (parameter.grad() * direction).sum().item<double>();
    EXPECT_NEAR(
        got, want,
        1e-3 * std::max(1.0, std::abs(want)));  // float32 values of about 10, over a step of 0.02
  }
}

TEST(Linear, FrozenWeightGetsNoGradientAndNeedlessInputsNone) {
  Leaves t;
  t.w.set_requires_grad(false);
  t.bias.set_requires_grad(false);
  t.x.set_requires_grad(false);
  linear(t.x, t.w, t.bias, {t.a, t.b, 1, {}}).sum().backward();
  EXPECT_FALSE(t.w.grad().defined() || t.bias.grad().defined() || t.x.grad().defined());
  EXPECT_TRUE(t.a.grad().defined() && t.b.grad().defined());
  EXPECT_FALSE(linear(t.x, t.w, t.bias).requires_grad());
}

TEST(Linear, StoredBf16InFp32IsExactlyTheWidenedWeight) {
  Leaves t, u;
  const at::Tensor stored = t.w.detach().to(at::kBFloat16);
  const at::Tensor got = linear(t.x, stored, t.bias.detach().to(at::kBFloat16), {t.a, t.b, 2, {}});
  const at::Tensor want =
      linear(u.x, stored.to(at::kFloat), u.bias.detach().to(at::kBFloat16).to(at::kFloat),
             {u.a, u.b, 2, {}});
  EXPECT_TRUE(at::equal(got, want));
  got.sum().backward();
  want.sum().backward();
  EXPECT_TRUE(at::equal(t.x.grad(), u.x.grad()));
}

TEST(Linear, LowPrecisionComputesInItAndKeepsMastersInFp32) {
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
    Leaves t, u;
    const ComputeDtypeGuard guard(type);
    const at::Tensor got = linear_gated(t.x, t.up, t.w, t.bias, {t.a, t.b, 2, {}});
    EXPECT_EQ(got.scalar_type(), type);
    const at::Tensor want = plain(u, true, true, 2, at::ones({2, 5, 12}));
    EXPECT_LT(relative_error(got, want), 2e-2);
    got.to(at::kFloat).sum().backward();
    want.sum().backward();
    for (const at::Tensor& parameter : t.all())
      EXPECT_EQ(parameter.grad().scalar_type(), at::kFloat);
    expect_gradients(t, u, 3e-2);
  }
}

TEST(Linear, Fp16OverflowsToInfinity) {  // beyond 65,504, on a CPU too
  const ComputeDtypeGuard guard(at::kHalf);
  const at::Tensor y = linear(at::full({1, 4}, 200.0f), at::full({1, 4}, 200.0f), at::Tensor());
  EXPECT_TRUE(std::isinf(y.item<float>()));
}

TEST(Linear, GradientsAddUpInFp32) {
  Leaves t;
  for (int i = 0; i < 2; ++i) {
    const ComputeDtypeGuard guard(at::kBFloat16);
    linear(t.x, t.w.detach(), at::Tensor(), {t.a, t.b, 1, {}}).sum().backward();
  }
  Leaves u;
  const ComputeDtypeGuard guard(at::kBFloat16);
  linear(u.x, u.w.detach(), at::Tensor(), {u.a, u.b, 1, {}}).sum().backward();
  EXPECT_TRUE(at::equal(t.a.grad(), u.a.grad() * 2));
}

TEST(Linear, NothingIsKeptWithoutGradMode) {
  const at::NoGradGuard no_grad;
  Leaves t;
  EXPECT_FALSE(linear(t.x, t.w, t.bias, {t.a, t.b, 1, {}}).requires_grad());
}

}  // namespace
}  // namespace lft::test::linear_test
