// Sharded weights on every device: a separate stream gathers while another computes.
#include "gpu/devices.h"
#include "models/shard_pool.h"

namespace lft::test::sharded_device_test {
namespace {

class ShardedOn : public OnDevice {};

TEST_P(ShardedOn, WeightsGiveTheProductsOfTheWhole) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16})
    expect_products_of_the_whole(device(), type, BaseStorage::kDense, type);
  expect_products_of_the_whole(device(), at::kBFloat16, BaseStorage::kNf4, at::kBFloat16);
}

LFT_ON_EACH_DEVICE(ShardedOn);

}  // namespace
}  // namespace lft::test::sharded_device_test
