// Processes that share weights, as objects of one process: each with its own ShardedBlocks over
// commonly visible parts.
#pragma once
#include <ATen/ATen.h>

#include <atomic>
#include <mutex>
#include <set>

#include "models/ops/weight/sharded.h"

namespace lft::test {
using namespace lft::ops;

/// The shared state, and a record of requests.
struct ShardPool {
  at::Device device = at::kCPU;
  std::vector<at::Tensor> parts;
  std::atomic<int64_t> reads = 0;
  std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> filled;  // the memory of whole blocks
  std::mutex mutex;                                               // protects `filled`
  bool watched = false;

  /// Blocks that are present now.
  int64_t there() {
    const std::lock_guard lock(mutex);
    std::set<const void*> alive;
    for (const auto& memory : filled) {
      if (const auto strong = memory.lock()) alive.insert(strong.get());
    }
    return std::ssize(alive);
  }
};

class PooledMemory : public ShardMemory {
 public:
  PooledMemory(ShardPool& pool, int64_t own) : pool_(pool), own_(own) {}
  int64_t holders() const override { return std::ssize(pool_.parts); }
  int64_t own() const override { return own_; }
  at::Tensor hold(int64_t bytes) override {
    return pool_.parts[static_cast<size_t>(own_)] =
               at::zeros({bytes}, at::TensorOptions(at::kByte).device(pool_.device));
  }
  std::vector<uint64_t> sum(const std::vector<uint64_t>& own) override { return own; }
  void read(int64_t holder, int64_t begin, at::Tensor to) override {
    ++pool_.reads;
    if (pool_.watched) {
      const std::lock_guard lock(pool_.mutex);
      pool_.filled.push_back(to.storage().getWeakStorageImpl());
    }
    to.copy_(pool_.parts[static_cast<size_t>(holder)].narrow(0, begin, to.numel()),
             /*non_blocking=*/true);
  }

 private:
  ShardPool& pool_;
  const int64_t own_;
};

/// Blocks of one weight each, sharded over `holders` processes, as each of them has it.
inline std::vector<std::vector<c10::intrusive_ptr<ShardedWeight>>> share_out(
    ShardPool& pool, const std::vector<at::Tensor>& weights_oi, BaseStorage storage,
    int64_t holders) {
  pool.parts.resize(static_cast<size_t>(holders));
  std::vector<std::vector<c10::intrusive_ptr<ShardedWeight>>> all;
  for (int64_t own = 0; own < holders; ++own) {
    const auto blocks = c10::make_intrusive<ShardedBlocks>(
        std::make_shared<PooledMemory>(pool, own), std::ssize(weights_oi));
    auto& held = all.emplace_back();
    for (const at::Tensor& weight : weights_oi) {
      held.push_back(c10::make_intrusive<ShardedWeight>(blocks, std::ssize(held), weight.sizes(),
                                                        weight.scalar_type(), storage));
    }
    blocks->hold();
    for (size_t i = 0; i < held.size(); ++i) held[i]->take(weights_oi[i]);
  }
  return all;
}

/// Products in both directions equal those of the whole weights, bit for bit, in every process.
inline void expect_products_of_the_whole(at::Device device, at::ScalarType stored,
                                         BaseStorage storage, at::ScalarType compute) {
  at::manual_seed(5);
  std::vector<at::Tensor> weights;
  for (const auto& [out, in] : {std::pair{48, 32}, {16, 80}, {64, 16}})
    weights.push_back(at::randn({out, in}).to(stored).to(device));
  for (const int64_t holders : {2, 3, 4}) {
    ShardPool pool;
    pool.device = device;
    const auto all = share_out(pool, weights, storage, holders);
    for (const auto& held : all) {
      for (const size_t i : {0u, 1u, 2u, 2u, 1u, 0u, 0u, 2u}) {
        const Weight whole = storage == BaseStorage::kDense
                                 ? Weight(weights[i])
                                 : Weight(quantize(weights[i], storage, device)),
                     sharded = Weight(held[i]);
        const auto drawn = [&](int64_t columns) {
          return at::randn({7, columns}).to(compute).to(device);
        };
        const at::Tensor x = drawn(whole.in()), dy = drawn(whole.out());
        EXPECT_TRUE(at::equal(weight_product(x, sharded, {}), weight_product(x, whole, {})));
        EXPECT_TRUE(
            at::equal(weight_product_backward(dy, sharded), weight_product_backward(dy, whole)));
        EXPECT_TRUE(at::equal(sharded.to(at::kFloat), whole.to(at::kFloat)));
        EXPECT_EQ(sharded.can_alias_as(at::kFloat), whole.can_alias_as(at::kFloat));
        EXPECT_EQ(sharded.kind(), storage);
        EXPECT_FALSE(sharded.trains());
      }
    }
  }
}

}  // namespace lft::test
