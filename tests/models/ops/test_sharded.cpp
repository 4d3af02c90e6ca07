// Weights sharded over several processes: the same products, at most the memory of a slice
// and two blocks, and no repeated gathering.
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <functional>

#include "models/ops/experts/expert_linear.h"
#include "models/ops/weight/expert_weight.h"
#include "models/shard_pool.h"

namespace lft::test::sharded_test {
namespace {

struct Form {
  const char* name;
  at::ScalarType stored;
  BaseStorage storage;
  at::ScalarType compute;
};
void PrintTo(const Form& form, std::ostream* out) { *out << form.name; }

class Sharded : public ::testing::TestWithParam<Form> {};

TEST_P(Sharded, WeightsGiveTheProductsOfTheWhole) {
  expect_products_of_the_whole(at::kCPU, GetParam().stored, GetParam().storage, GetParam().compute);
}

INSTANTIATE_TEST_SUITE_P(
    Of, Sharded,
    ::testing::Values(Form{"fp32", at::kFloat, BaseStorage::kDense, at::kFloat},
                      Form{"bf16", at::kBFloat16, BaseStorage::kDense, at::kBFloat16},
                      Form{"widened", at::kBFloat16, BaseStorage::kDense, at::kFloat},
                      Form{"nf4", at::kBFloat16, BaseStorage::kNf4, at::kBFloat16},
                      Form{"fp8", at::kBFloat16, BaseStorage::kFp8, at::kBFloat16}),
    [](const auto& info) { return info.param.name; });

/// The shards of a block together are the block, padded to whole cache lines.
TEST(ShardedBlocks, EachProcessHoldsItsShare) {
  const std::vector<at::Tensor> weights = {at::randn({48, 32}), at::randn({7, 5})};
  for (const int64_t holders : {1, 2, 3, 8}) {
    ShardPool pool;
    share_out(pool, weights, BaseStorage::kDense, holders);
    const int64_t bytes = 4 * (48 * 32 + 7 * 5);
    for (const at::Tensor& part : pool.parts) {
      EXPECT_GE(part.numel() * holders, bytes);
      EXPECT_LE(part.numel(), bytes / holders + 2 * 64 * 2);
    }
  }
}

/// Up, down and up again: at the turns the blocks are still present, and never more than two.
TEST(ShardedBlocks, AreGatheredOneAheadAndFreedAfterTheirTurn) {
  constexpr int64_t kBlocks = 5, kHolders = 2;
  std::vector<at::Tensor> weights;
  for (int64_t i = 0; i < kBlocks; ++i) weights.push_back(at::full({64, 64}, i + 1.0));
  ShardPool pool;
  const auto held = share_out(pool, weights, BaseStorage::kDense, kHolders).front();
  pool.watched = true;
  const auto visit = [&](int64_t block) {
    const at::Tensor weight = held[static_cast<size_t>(block)]->dense(at::kFloat);
    EXPECT_TRUE(at::equal(weight, weights[static_cast<size_t>(block)]));
    const at::Tensor x = at::ones({2, 64});  // requests it again
    EXPECT_EQ(held[static_cast<size_t>(block)]->product(x, {})[0][0].item<double>(),
              64.0 * static_cast<double>(block + 1));
    EXPECT_LE(pool.there(), 2);
  };
  const auto gathered = [&](const std::function<void()>& pass) {
    const int64_t before = pool.reads;
    pass();
    return (pool.reads - before) / kHolders;
  };
  const auto up = [&] {
    for (int64_t i = 0; i < kBlocks; ++i) visit(i);
  };
  const auto down = [&] {
    for (int64_t i = kBlocks - 1; i >= 0; --i) visit(i);
  };
  EXPECT_EQ(gathered(up), kBlocks);
  EXPECT_EQ(gathered(down), kBlocks - 2);
  EXPECT_EQ(gathered(up), kBlocks - 2);
  EXPECT_EQ(gathered(up), kBlocks);  // as when generating tokens
  const auto jump = [&] {
    for (const int64_t block : {2, 0, 4}) visit(block);
  };
  EXPECT_EQ(gathered(jump), 3 + 2);  // a wrong prediction costs one
}

/// Threads compute several experts of a block at a time.
TEST(ShardedExperts, GiveTheProductsOfTheWhole) {
  constexpr int64_t kExperts = 8, kOut = 32, kIn = 48, kTokens = 400;
  at::manual_seed(5);
  const at::Tensor weights = at::randn({2 * kExperts * kOut, kIn}), x = at::randn({kTokens, kIn}),
                   up = at::randn({2 * kTokens, kOut});
  const ExpertRowsPtr rows = sort_by_expert(
      at::stack({at::arange(kTokens) % kExperts, (at::arange(kTokens) + 3) % kExperts}, 1),
      kExperts);
  const auto run = [&](const Weight& weight) {
    const at::Tensor own = x.clone().set_requires_grad(true),
                     y = expert_linear(own, rows, {weight, {}});
    y.backward(up);
    return std::pair{y.detach(), own.grad()};
  };
  const int threads = at::get_num_threads();
  at::set_num_threads(4);
  for (const BaseStorage storage : {BaseStorage::kDense, BaseStorage::kNf4, BaseStorage::kFp8}) {
    ShardPool pool;
    pool.parts.resize(3);
    std::vector<std::vector<c10::intrusive_ptr<CodedWeight>>> layers;  // of the last process
    for (int64_t own = 0; own < 3; ++own) {
      const auto blocks =
          c10::make_intrusive<ShardedBlocks>(std::make_shared<PooledMemory>(pool, own), 2);
      layers.assign(2, {});
      for (int64_t i = 0; i < 2 * kExperts; ++i)
        layers[static_cast<size_t>(i / kExperts)].push_back(c10::make_intrusive<ShardedWeight>(
            blocks, i / kExperts, at::IntArrayRef({kOut, kIn}), at::kFloat, storage));
      blocks->hold();
      for (int64_t i = 0; i < 2 * kExperts; ++i)
        static_cast<ShardedWeight&>(
            *layers[static_cast<size_t>(i / kExperts)][static_cast<size_t>(i % kExperts)])
            .take(weights.narrow(0, i * kOut, kOut));
    }
    for (const int64_t layer : {0, 1, 1, 0, 1}) {
      const at::Tensor own = weights.chunk(2)[static_cast<size_t>(layer)];
      const Weight whole = storage == BaseStorage::kDense
                               ? Weight(own)
                               : Weight(quantize_experts(own, kExperts, storage, at::kCPU));
      const auto [y, dx] = run(whole);
      const c10::intrusive_ptr<CodedWeight> experts =
          c10::make_intrusive<ExpertStorage>(layers[static_cast<size_t>(layer)]);
      const auto [sharded_y, sharded_dx] = run(experts);
      EXPECT_TRUE(sharded_y.equal(y));
      EXPECT_TRUE(sharded_dx.equal(dx));
    }
  }
  at::set_num_threads(threads);
}

}  // namespace
}  // namespace lft::test::sharded_test
