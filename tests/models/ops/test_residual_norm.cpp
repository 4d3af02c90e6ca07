// The norm of a residual sum in one pass: the same bits as sum and norm in sequence, in
// both passes.
#include <torch/csrc/autograd/autograd.h>

#include "models/ops/core/precision.h"
#include "models/ops/elementwise/rms_norm.h"
#include "models/tiny.h"
#include "support/counting_allocator.h"

namespace lft::test::residual_norm_test {
namespace {

struct Types {
  at::ScalarType stream, delta, compute;
};

// Dtypes of a residual stream and a block's output for all bases and compute dtypes.
const Types kTypes[] = {{at::kFloat, at::kFloat, at::kFloat},
                        {at::kBFloat16, at::kBFloat16, at::kBFloat16},
                        {at::kFloat, at::kBFloat16, at::kBFloat16},
                        {at::kHalf, at::kHalf, at::kHalf},
                        {at::kFloat, at::kHalf, at::kHalf}};

at::Tensor leaf(const std::string& name, at::IntArrayRef shape, at::ScalarType type) {
  return (fill_by_hash(name, shape) * 3).to(type).requires_grad_();
}

struct Result {
  at::Tensor sum, y;
  std::vector<at::Tensor> gradients;
};

/// unit: how s and y are computed from x, delta and w.
template <class Unit>
Result run(const Types& types, at::IntArrayRef shape, const Unit& unit) {
  const ComputeDtypeGuard compute(types.compute);
  const std::vector<at::Tensor> leaves = {leaf("x", shape, types.stream),
                                          leaf("delta", shape, types.delta),
                                          leaf("w", {shape.back()}, types.stream)};
  auto [sum, y] = unit(leaves);
  const at::Tensor loss =
      (sum * leaf("dsum", shape, sum.scalar_type()).detach()).to(at::kFloat).sum() +
      (y * leaf("dy", shape, y.scalar_type()).detach()).to(at::kFloat).sum();
  return {sum, y, torch::autograd::grad({loss}, leaves)};
}

TEST(ResidualNorm, IsTheSumAndTheNormOneAfterTheOther) {
  for (const Types& types : kTypes) {
    for (const std::vector<int64_t>& shape :
         {std::vector<int64_t>{2, 5, 64}, {1, 33}, {3, 1, 7}, {200, 129}}) {
      const Result fused = run(types, shape, [](const std::vector<at::Tensor>& t) {
        const Normed result = add_rms_norm(t[0], t[1], t[2], 1e-5);
        return std::pair(result.sum, result.y);
      });
      const Result apart = run(types, shape, [](const std::vector<at::Tensor>& t) {
        const at::Tensor sum = t[0] + t[1];
        return std::pair(sum, rms_norm(sum, t[2], 1e-5));
      });
      EXPECT_TRUE(at::equal(fused.sum, apart.sum));
      EXPECT_TRUE(at::equal(fused.y, apart.y));
      for (size_t k = 0; k < fused.gradients.size(); ++k)
        EXPECT_TRUE(at::equal(fused.gradients[k], apart.gradients[k])) << k;
    }
  }
}

/// Using `sum` directly where nothing was added saves autograd an addition; no bit changes.
TEST(ResidualNorm, HandsTheStreamOn) {
  for (const Types& types : kTypes) {
    const std::vector<int64_t> shape = {6, 40};
    const Result handed = run(types, shape, [](const std::vector<at::Tensor>& t) {
      const Normed result = add_rms_norm(t[0], {}, t[2], 1e-5);
      return std::pair(result.sum + t[1], result.y);
    });
    const Result apart = run(types, shape, [](const std::vector<at::Tensor>& t) {
      return std::pair(t[0] + t[1], rms_norm(t[0], t[2], 1e-5));
    });
    EXPECT_TRUE(at::equal(handed.sum, apart.sum));
    EXPECT_TRUE(at::equal(handed.y, apart.y));
    for (size_t k = 0; k < handed.gradients.size(); ++k)
      EXPECT_TRUE(at::equal(handed.gradients[k], apart.gradients[k])) << k;
  }
}

TEST(ResidualNorm, TheGradientsOfSumAndOfYAloneReachBoth) {
  const at::Tensor x = leaf("x", {3, 8}, at::kFloat), delta = leaf("delta", {3, 8}, at::kFloat),
                   w = at::ones({8});
  const Normed only_sum = add_rms_norm(x, delta, w, 1e-5);
  for (const at::Tensor& gradient : torch::autograd::grad({only_sum.sum.sum()}, {x, delta}))
    EXPECT_TRUE(at::equal(gradient, at::ones({3, 8})));
  const auto of_y =
      torch::autograd::grad({add_rms_norm(x, delta, w, 1e-5).y.square().sum()}, {x, delta});
  EXPECT_TRUE(at::equal(of_y[0], of_y[1]));
  const at::Tensor frozen = x.detach();
  const auto of_delta =
      torch::autograd::grad({add_rms_norm(frozen, delta, w, 1e-5).y.square().sum()}, {delta});
  EXPECT_TRUE(at::equal(of_delta[0], of_y[1]));
}

TEST(ResidualNorm, TheNormAgainHasTheSameBits) {
  for (const Types& types : kTypes) {
    const ComputeDtypeGuard compute(types.compute);
    const at::Tensor x = leaf("x", {9, 130}, types.stream), w = leaf("w", {130}, types.stream);
    const Normed result = add_rms_norm(x, leaf("delta", {9, 130}, types.delta), w, 1e-5);
    EXPECT_TRUE(at::equal(rms_norm_again(result.sum, w, 1e-5, result.y.scalar_type()), result.y));
  }
}

TEST(ResidualNorm, KeepsTheSumAndOneNumberARow) {
  const CountingAllocator counting;
  const at::Tensor x = leaf("x", {512, 64}, at::kFloat), w = at::ones({64});
  const at::Tensor delta = leaf("delta", {512, 64}, at::kFloat);
  const int64_t before = CountingAllocator::live();
  const Normed result = add_rms_norm(x, delta, w, 1e-5);
  EXPECT_EQ(CountingAllocator::live() - before, 2 * 512 * 64 * 4 + 512 * 4);  // s, y; 1 / sqrt(...)
}

TEST(ResidualNorm, RefusesWhatDoesNotFit) {
  const auto fault = [](const at::Tensor& delta) {
    return error_of(
               [&] {
                 add_rms_norm(at::zeros({3, 8}), delta, at::ones({8}), 1e-5);
               },
               ErrorKind::kInternal)
        .what;
  };
  EXPECT_NE(fault(at::zeros({3, 1})).find("delta does not fit"), std::string::npos);
  EXPECT_NE(fault(at::zeros({1, 8})).find("delta does not fit"), std::string::npos);
}

}  // namespace
}  // namespace lft::test::residual_norm_test
