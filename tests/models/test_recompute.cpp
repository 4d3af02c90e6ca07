// Activation checkpointing: the same bits with less memory.
#include <ATen/Context.h>
#include <ATen/core/grad_mode.h>

#include <optional>

#include "models/layers/recompute.h"
#include "models/lora/inject.h"
#include "models/lora/inject_select.h"
#include "models/loss_sum.h"
#include "models/ops/core/precision.h"
#include "models/tiny.h"
#include "support/counting_allocator.h"

namespace lft::test::recompute_test {
namespace {

struct Pass {
  double loss = 0;
  std::vector<at::Tensor> gradients;
  int64_t kept = 0;  // bytes between the passes
};

Pass run(int64_t every, at::ScalarType compute,
         const std::vector<std::string>& full = {"projector"}, bool offload = false,
         double drops = 0.2) {
  Json json = tiny_json();
  json["text_config"]["num_hidden_layers"] = 5;
  const family::ModelConfig config = llava::parse_llava(json, "deep");
  Model model = make_llava(config);
  std::vector<std::string> targets = {"llm:all-linear", "vision:all-linear"};
  if (!full.empty() && full[0] == "all") targets.clear();
  if (!targets.empty())
    inject_lora(select_sites(linear_sites(*model), targets),
                {.rank = 4, .alpha = 8, .dropout = drops}, 3);
  const std::vector<Trainable> trainables = make_trainable(*model, full);
  fill_adapters(model);
  const int64_t before = CountingAllocator::live();
  at::Tensor loss;
  {
    const ComputeDtypeGuard dtype(compute);
    const DropoutGuard dropout({.seed = 5, .step = 2, .micro_batch = 1});
    const RecomputeGuard recompute(every, offload);
    loss = test::loss_sum(model, tiny_batch(config));
  }
  Pass pass{
      .loss = loss.item<double>(), .gradients = {}, .kept = CountingAllocator::live() - before};
  loss.backward();
  for (const Trainable& trainable : trainables) pass.gradients.push_back(trainable.tensor.grad());
  return pass;
}

void expect_same(const Pass& a, const Pass& b) {
  EXPECT_EQ(a.loss, b.loss);
  ASSERT_EQ(a.gradients.size(), b.gradients.size());
  int defined = 0;
  for (size_t i = 0; i < a.gradients.size(); ++i) {
    ASSERT_EQ(a.gradients[i].defined(), b.gradients[i].defined()) << i;
    if (!a.gradients[i].defined()) continue;
    ++defined;
    EXPECT_TRUE(at::equal(a.gradients[i], b.gradients[i])) << i;
  }
  EXPECT_GT(defined, 20);
}

TEST(Recompute, GivesTheSameBitsWithDropoutInEveryPrecision) {
  for (const at::ScalarType compute : {at::kFloat, at::kBFloat16, at::kHalf}) {
    const Pass plain = run(0, compute);
    for (const int64_t every : {1, 2, 3}) expect_same(plain, run(every, compute));
  }
}

/// Layers of one input then share the low-rank product.
TEST(Recompute, GivesTheSameBitsWithoutDropout) {
  for (const at::ScalarType compute : {at::kFloat, at::kBFloat16}) {
    const Pass plain = run(0, compute, {"projector"}, /*offload=*/false, /*drops=*/0);
    for (const int64_t every : {1, 2})
      expect_same(plain, run(every, compute, {"projector"}, /*offload=*/false, /*drops=*/0));
  }
}

TEST(Recompute, OfAModelTrainedWhole) {
  expect_same(run(0, at::kFloat, {"all"}), run(1, at::kFloat, {"all"}));
}

TEST(Recompute, InputsThatWaitInHostMemoryGiveTheSameBits) {
  for (const at::ScalarType compute : {at::kFloat, at::kBFloat16}) {
    const Pass plain = run(0, compute);
    for (const int64_t every : {1, 2})
      expect_same(plain, run(every, compute, {"projector"}, /*offload=*/true));
  }
  expect_same(run(0, at::kFloat, {"all"}), run(1, at::kFloat, {"all"}, /*offload=*/true));
}

/// One linear layer as a block.
struct LinearBlock : torch::nn::Module {
  LinearBlock() { weight = register_parameter("weight", at::linspace(-1, 1, 36).view({6, 6})); }
  at::Tensor weight;
};

TEST(Recompute, AnOffloadedInputIsNotKeptBetweenThePasses) {
  for (const bool offload : {false, true}) {
    const LinearBlock block;
    const RecomputeGuard guard(1, offload);
    const at::Tensor leaf =
        at::linspace(0, 1, 6 * 40).view({6, 40}).t().requires_grad_();  // unusual strides
    at::Tensor x = leaf * 2;
    const c10::weak_intrusive_ptr<c10::StorageImpl> storage(x.storage().getWeakStorageImpl());
    std::vector<std::vector<int64_t>> strides;
    const at::Tensor y = recompute(block, x, [&](const at::Tensor& input) {
      strides.push_back(input.strides().vec());
      return (input.mm(block.weight)).tanh();
    });
    x = at::Tensor();
    EXPECT_EQ(storage.expired(), offload);
    y.sum().backward();
    ASSERT_EQ(strides.size(), 2u);
    EXPECT_EQ(strides[0], strides[1]);
    const at::Tensor input = leaf.detach() * 2,
                     slope = 1 - input.mm(block.weight.detach()).tanh().square();
    EXPECT_TRUE(at::allclose(leaf.grad(), 2 * slope.mm(block.weight.detach().t()), 1e-5, 1e-6));
    EXPECT_TRUE(at::allclose(block.weight.grad(), input.t().mm(slope), 1e-5, 1e-6));
  }
}

TEST(Recompute, AnOffloadedPassRunsBackOnlyOnce) {
  const LinearBlock block;
  const RecomputeGuard guard(1, /*offload=*/true);
  const at::Tensor y = recompute(block, at::ones({2, 6}), [&](const at::Tensor& input) {
    return input.mm(block.weight).tanh();
  });
  y.sum().backward();
  EXPECT_THROW(y.sum().backward(), std::exception);
}

/// Copies through pinned memory, without blocking the host: checked on a device.
TEST(Recompute, OffloadedFromAGpuGivesTheSameBits) {
  if (!at::globalContext().hasCUDA()) GTEST_SKIP() << "no GPU";
  std::vector<at::Tensor> gradients;
  for (const bool offload : {false, true}) {
    LinearBlock block;
    block.to(at::Device(at::kCUDA));
    const RecomputeGuard guard(1, offload);
    at::Tensor x =
        at::linspace(0, 1, 6 * 4000, at::TensorOptions().device(at::kCUDA)).view({4000, 6});
    for (int layer = 0; layer < 8; ++layer) {
      x = recompute(block, x,
                    [&](const at::Tensor& input) { return input.mm(block.weight).tanh(); });
    }
    x.sum().backward();
    gradients.push_back(block.weight.grad().cpu());
  }
  EXPECT_TRUE(at::equal(gradients[0], gradients[1]));
}

TEST(Recompute, KeepsLessBetweenThePasses) {
  const CountingAllocator counting;
  const int64_t plain = run(0, at::kFloat).kept, every = run(1, at::kFloat).kept,
                second = run(2, at::kFloat).kept;
  EXPECT_LT(every, second);
  EXPECT_LT(second, plain);
  EXPECT_LT(every, plain / 3);  // a block keeps its input of about twenty tensors of that size
}

TEST(Recompute, WithoutAGraphThereIsNothingToRunAgain) {
  const at::NoGradGuard no_grad;
  const RecomputeGuard recompute(1);
  Model model = make_llava(tiny_config());
  EXPECT_FALSE(recomputes(0));
  EXPECT_FALSE(test::loss_sum(model, tiny_batch(tiny_config())).requires_grad());
}

}  // namespace
}  // namespace lft::test::recompute_test
