// NF4 layers: the same numbers as a dense layer with the dequantised weights, in every dtype,
// forward and backward.
#include "models/dense_twin.h"
#include "models/ops/core/precision.h"
#include "models/ops/linear/linear.h"
#include "models/ops/weight/nf4.h"
#include "models/tiny.h"

namespace lft::test::nf4_test {
namespace {

at::Tensor weights(int64_t out, int64_t in) {
  at::manual_seed(5);
  return at::randn({out, in}) * 0.1;
}

TEST(Nf4Weight, DequantisesInEveryDtypeToTheRoundedFloat) {
  for (const auto& [out, in] :
       std::vector<std::pair<int64_t, int64_t>>{{3, 5}, {16, 64}, {70, 130}, {300, 512}}) {
    const auto storage = quantize_nf4(weights(out, in), at::kCPU);
    const at::Tensor wide = storage->dense(at::kFloat);
    EXPECT_EQ(wide.sizes(), at::IntArrayRef({out, in}));
    for (const at::ScalarType dtype : {at::kBFloat16, at::kHalf})
      EXPECT_TRUE(at::equal(storage->dense(dtype), wide.to(dtype)));
    // Blocks of 64 normals with one deviation: the quantisation noise of NF4 is about 0.09 of it
    // (QLoRA); far from both 0 and 1.
    const double noise =
        ((wide - weights(out, in)).norm() / weights(out, in).norm()).item<double>();
    EXPECT_GT(noise, 0.03);
    EXPECT_LT(noise, 0.2);
  }
}

TEST(Nf4Weight, TakesAnEighthOfTheMemory) {
  double bytes = 0;
  for (const auto& [name, part] : quantize_nf4(weights(1024, 4096), at::kCPU)->parts())
    bytes += static_cast<double>(part.nbytes());
  const double bits = 8.0 * bytes / (1024 * 4096);
  EXPECT_DOUBLE_EQ(bits, 4 + 8.0 / 64 + 32.0 / (64 * 256));  // 4.127
}

struct Result {
  at::Tensor y, dx, da, db;
};

Result run(const Weight& weight, at::ScalarType compute) {
  at::manual_seed(9);
  const ComputeDtypeGuard dtype(compute);
  const at::Tensor x = at::randn({4, 7, weight.in()}).requires_grad_();
  const at::Tensor a = at::randn({3, weight.in()}).requires_grad_(),
                   b = at::randn({weight.out(), 3}).requires_grad_();
  const at::Tensor y = linear(x, weight, at::Tensor(), {a, b, 0.5, {}});
  (y * at::randn(y.sizes()).to(y.scalar_type())).sum().backward();
  return {y.detach(), x.grad(), a.grad(), b.grad()};
}

TEST(Nf4Weight, ALayerGivesTheBitsOfItsDenseTwin) {
  const auto storage = quantize_nf4(weights(48, 80), at::kCPU);
  for (const at::ScalarType compute : {at::kFloat, at::kBFloat16, at::kHalf}) {
    const Result codes = run(Weight(storage), compute),
                 dense = run(storage->dense(at::kFloat), compute);
    EXPECT_TRUE(at::equal(codes.y, dense.y));
    EXPECT_TRUE(at::equal(codes.dx, dense.dx));
    EXPECT_TRUE(at::equal(codes.da, dense.da));
    EXPECT_TRUE(at::equal(codes.db, dense.db));
  }
}

TEST(Nf4Weight, AModelTrainsAsItsDenseTwin) {
  expect_trains_as_its_dense_twin(BaseStorage::kNf4);
  expect_trains_as_its_dense_twin(BaseStorage::kNf4, tiny_expert_config());
}

}  // namespace
}  // namespace lft::test::nf4_test
