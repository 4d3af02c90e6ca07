// Weights sharded over several processes: the same products, at most the memory of a slice
// and two blocks, and no repeated gathering.
#include <gtest/gtest.h>

#include <functional>

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

}  // namespace
}  // namespace lft::test::sharded_test
