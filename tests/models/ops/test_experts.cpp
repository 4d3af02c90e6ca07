// The linear layers of experts against a loop over experts of LibTorch's autograd in float64.
#include <ATen/Parallel.h>

#include "models/layers/expert_linear.h"
#include "models/llama/sparse_mlp.h"
#include "models/ops/core/precision.h"
#include "models/ops/experts/expert_linear.h"
#include "models/ops/weight/expert_weight.h"
#include "models/tiny.h"

namespace lft::test::experts_test {
namespace {

using ops::ExpertRowsPtr;

at::Tensor leaf(const at::Tensor& x) { return x.detach().clone().set_requires_grad(true); }

/// Experts 0 and 4 of 6 get no token, expert 2 gets most.
at::Tensor choices() {
  std::vector<int64_t> all;
  for (int64_t t = 0; t < 40; ++t) {
    all.push_back(2);
    all.push_back(t % 5 == 0 ? 5 : t % 2 == 0 ? 1 : 3);
  }
  return at::tensor(all, at::kLong).view({40, 2});
}

/// Weights and factors of 6 experts with rank 2: d 12 features, m 10 hidden ones.
struct Case {
  at::Tensor x = fill_by_hash("x", {40, 12}), share = fill_by_hash("share", {40, 2}),
             in = fill_by_hash("in", {6 * 20, 12}), in_a = fill_by_hash("in_a", {6 * 2, 12}),
             in_b = fill_by_hash("in_b", {6 * 20, 2}), out = fill_by_hash("out", {6 * 12, 10}),
             out_a = fill_by_hash("out_a", {6 * 2, 10}), out_b = fill_by_hash("out_b", {6 * 12, 2});
  std::vector<at::Tensor*> all() { return {&x, &share, &in, &in_a, &in_b, &out, &out_a, &out_b}; }
  void to(at::ScalarType type) {
    for (at::Tensor* tensor : all()) *tensor = leaf(tensor->to(type));
  }
  std::vector<at::Tensor> gradients() {
    std::vector<at::Tensor> found;
    for (at::Tensor* tensor : all()) found.push_back(tensor->grad());
    return found;
  }
};

constexpr double kScale = 0.75;

at::Tensor got(Case& of) {
  const ExpertRowsPtr rows = ops::sort_by_expert(choices(), 6);
  const LowRank in{.a_ri = of.in_a, .b_or = of.in_b, .scale = kScale, .mask = {}},
      out{.a_ri = of.out_a, .b_or = of.out_b, .scale = kScale, .mask = {}};
  const at::Tensor gate_up = ops::expert_linear(of.x, rows, {of.in, in});
  return ops::expert_linear_gated(gate_up, of.share, rows, {of.out, out}, ops::Gate::kSilu);
}

/// transformers' loop over experts, with PEFT's change of the weights.
at::Tensor want(Case& of) {
  at::Tensor sum = at::zeros({40, 12}, at::kDouble);
  for (int64_t e = 0; e < 6; ++e) {
    const auto whole = [&](const at::Tensor& w, const at::Tensor& a, const at::Tensor& b) {
      return w.chunk(6)[static_cast<size_t>(e)] +
             kScale * b.chunk(6)[static_cast<size_t>(e)].mm(a.chunk(6)[static_cast<size_t>(e)]);
    };
    for (int64_t j = 0; j < 2; ++j) {
      const at::Tensor tokens = (choices().select(1, j) == e).nonzero().flatten();
      const std::vector<at::Tensor> parts =
          of.x.index_select(0, tokens).mm(whole(of.in, of.in_a, of.in_b).t()).chunk(2, 1);
      const at::Tensor y =
          (at::silu(parts[0]) * parts[1]).mm(whole(of.out, of.out_a, of.out_b).t()) *
          of.share.select(1, j).index_select(0, tokens).unsqueeze(1);
      sum = sum.index_add(0, tokens, y);
    }
  }
  return sum;
}

TEST(Experts, RowsAreSortedByExpertAndToken) {
  const ExpertRowsPtr rows = ops::sort_by_expert(choices(), 6);
  EXPECT_EQ(rows->starts, (std::vector<int64_t>{0, 0, 16, 56, 72, 72, 80}));
  const at::Tensor expert = choices().flatten().index_select(0, rows->choices_r);
  EXPECT_TRUE(at::equal(expert, std::get<0>(expert.sort())));
  EXPECT_TRUE(at::equal(rows->tokens_r, rows->choices_r.div(2, "floor")));
  EXPECT_TRUE(at::equal(rows->rows_tk.flatten().index_select(0, rows->choices_r),
                        at::arange(80, at::kLong)));
}

TEST(Experts, ValuesAndGradientsAreThoseOfALoopOverExperts) {
  Case mine, theirs;
  mine.to(at::kFloat);
  theirs.to(at::kDouble);
  const at::Tensor y = got(mine), expected = want(theirs), up = fill_by_hash("up", {40, 12});
  EXPECT_LT(relative_error(y, expected), 1e-6);
  y.backward(up);
  expected.backward(up.to(at::kDouble));
  const std::vector<at::Tensor> a = mine.gradients(), b = theirs.gradients();
  for (size_t i = 0; i < a.size(); ++i) EXPECT_LT(relative_error(a[i], b[i]), 1e-6) << i;
  EXPECT_EQ(mine.in_a.grad().narrow(0, 0, 2).abs().max().item<double>(), 0);  // an unused expert
}

TEST(Experts, Bf16RoundsAsLinearLayersDo) {
  Case mine, theirs;
  for (Case* one : {&mine, &theirs}) {
    one->x = one->x.to(at::kBFloat16);
    one->in = one->in.to(at::kBFloat16);
    one->out = one->out.to(at::kBFloat16);
  }
  theirs.to(at::kDouble);
  const ops::ComputeDtypeGuard guard(at::kBFloat16);
  // Each of the four roundings of a row is at most 2^-9, and its error is that of a sum.
  EXPECT_LT(relative_error(got(mine), want(theirs)), 4 * 0x1p-9);
}

TEST(Experts, ThreadsChangeNoBitAndDirectGradientsAreAdded) {
  const auto run = [](bool direct) {
    Case of;
    of.to(at::kFloat);
    if (direct)
      for (at::Tensor* factor : {&of.in_a, &of.in_b, &of.out_a, &of.out_b})
        factor->mutable_grad() = at::zeros_like(*factor);
    const ops::DirectGradientsGuard guard(direct);
    at::Tensor y = got(of);
    y.backward(fill_by_hash("up", {40, 12}));
    std::vector<at::Tensor> all = of.gradients();
    all.push_back(y.detach());
    return all;
  };
  const std::vector<at::Tensor> all = run(false), direct = run(true);
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  const std::vector<at::Tensor> alone = run(false);
  at::set_num_threads(threads);
  for (size_t i = 0; i < all.size(); ++i) {
    EXPECT_TRUE(at::equal(all[i], alone[i])) << i;
    EXPECT_TRUE(at::equal(all[i], direct[i])) << i;
  }
}

TEST(Experts, QuantizedExpertsAreTheirDequantizedWeights) {
  for (const ops::BaseStorage storage : {ops::BaseStorage::kNf4, ops::BaseStorage::kFp8}) {
    const at::Tensor weight = fill_by_hash("w", {3 * 32, 16}), x = fill_by_hash("x", {7, 16});
    const ExpertRowsPtr rows =
        ops::sort_by_expert(at::tensor({0, 2, 2, 0, 2, 2, 0}, at::kLong).view({7, 1}), 3);
    const auto coded = ops::quantize_experts(weight, 3, storage, at::kCPU);
    const at::Tensor dense = coded->dense(at::kFloat);
    EXPECT_LT(relative_error(dense, weight), 0.1);
    const auto run = [&](const ops::Weight& of) {
      const at::Tensor own = leaf(x);
      const at::Tensor y = ops::expert_linear(own, rows, {of, {}});
      y.backward(fill_by_hash("up", {7, 32}));
      return std::pair{y.detach(), own.grad()};
    };
    const auto [y, dx] = run(coded);
    const auto [dense_y, dense_dx] = run(dense);
    EXPECT_TRUE(at::equal(y, dense_y));
    EXPECT_TRUE(at::equal(dx, dense_dx));
  }
}

TEST(Experts, TheRouterTakesTheLargestProbabilities) {
  llama::LlamaConfig config;
  config.hidden = 8;
  config.experts = {.count = 5, .per_token = 2, .intermediate = 4};
  llama::Router router(config, at::TensorOptions(at::kFloat));
  router->weight.copy_(fill_by_hash("router", {5, 8}) * 3);
  const at::Tensor x = fill_by_hash("x", {30, 8});
  const llama::Choice choice = router->forward(x);
  const at::Tensor probabilities = at::softmax(x.mm(router->weight.t()), -1);
  for (int64_t t = 0; t < 30; ++t) {
    const auto [values, order] = probabilities[t].sort(-1, /*descending=*/true);
    EXPECT_TRUE(at::equal(choice.experts_tk[t], order.narrow(0, 0, 2)));
    const at::Tensor best = values.narrow(0, 0, 2);
    EXPECT_LT(relative_error(choice.shares_tk[t], best / best.sum()), 1e-6);
  }
}

}  // namespace
}  // namespace lft::test::experts_test
