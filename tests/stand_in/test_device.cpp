// The simulated device itself: CPU results, counts, and refusals as on a GPU.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "kernels/dropout/dropout.h"
#include "models/ops/core/copy_to_device.h"
#include "src/train/machine/cuda_graph.h"
#include "src/train/machine/determinism.h"
#include "src/train/machine/device.h"
#include "stand_in/device/device.h"

namespace lft::test::device_test {
using namespace lft::ops;
using namespace lft::train;
namespace {

using stand_in::Counts;
using stand_in::counts;

at::Tensor there(const at::Tensor& x) { return x.to(stand_in::device()); }
at::TensorOptions on_device() { return at::TensorOptions().device(stand_in::device()); }

TEST(StandIn, IsTheDeviceThatRunsUse) { EXPECT_EQ(default_device(), stand_in::device()); }

TEST(StandIn, ComputesWhatTheCpuComputes) {
  const at::Tensor x = at::randn({5, 7}), w = at::randn({7, 3});
  at::Tensor a = there(x).requires_grad_(), b = x.clone().requires_grad_();
  at::softmax(at::mm(a, there(w)).tanh(), -1).square().sum().backward();
  at::softmax(at::mm(b, w).tanh(), -1).square().sum().backward();
  EXPECT_TRUE(a.grad().cpu().equal(b.grad()));
  EXPECT_EQ(a.grad().device(), stand_in::device());
}

TEST(StandIn, ViewsShareMemory) {
  at::Tensor x = at::zeros({4, 6}, on_device());
  x.narrow(1, 2, 2).t().select(0, 1).fill_(3);
  x.view({2, 12}).unsqueeze(0).index_select(2, there(at::tensor({0})));
  EXPECT_EQ(x.cpu().sum().item<float>(), 12);
  EXPECT_TRUE(x.narrow(0, 1, 1).is_alias_of(x));
}

TEST(StandIn, RefusesWhatCudaRefusesUnderDeterministicAlgorithms) {
  const at::Tensor x = at::ones({1, 2, 4, 4}, on_device()).requires_grad_();
  const auto resize = [&] { at::upsample_bilinear2d(x, {3, 3}, false).sum().backward(); };
  make_deterministic(false);
  EXPECT_NO_THROW(resize());
  make_deterministic(true);
  EXPECT_THROW(resize(), c10::Error);
  make_deterministic(false);
}

TEST(StandIn, CountsWhatMakesTheHostWait) {
  const at::Tensor x = at::ones({100}, on_device()), host = at::ones({100});
  const auto of = [](const auto& body) {
    const Counts before = counts();
    body();
    return counts() - before;
  };
  EXPECT_EQ(of([&] { (void)(x + x).sum(); }).host_reads, 0);
  EXPECT_EQ(of([&] { (void)x.sum().item<float>(); }).host_reads, 1);
  EXPECT_EQ(of([&] { (void)x.cpu(); }).host_reads, 1);
  EXPECT_EQ(of([&] { (void)x.nonzero(); }).host_reads, 1);
  EXPECT_EQ(of([&] { (void)x.equal(x); }).host_reads, 1);
  EXPECT_GT(of([&] { (void)x.index({x > 0}); }).host_reads, 0);
  EXPECT_EQ(of([&] { (void)there(host); }).pageable_copies, 1);
  const Counts sent = of([&] { (void)copy_to_device(host, stand_in::device()); });
  EXPECT_EQ(sent.pageable_copies, 0);
  EXPECT_EQ(sent.pinned_copies, 1);
  EXPECT_EQ(of([&] { (void)(x + x); }).allocations, 1);
  EXPECT_EQ(of([&] { (void)(x + x); }).device_allocations, 0);  // the block of the line before
}

TEST(StandIn, RefusesWhatAGpuRefuses) {
  const at::Tensor x = at::ones({100}, on_device()), host = at::ones({100});
  EXPECT_THROW((void)x.pin_memory(), c10::Error);
  EXPECT_THROW((void)(x + host), c10::Error);
  EXPECT_THROW((void)at::mm(x.view({10, 10}), host.view({10, 10})), c10::Error);
  EXPECT_NO_THROW((void)(x + at::scalar_tensor(1)));  // a scalar may come from the host
  const DropoutArgs args{
      .seed = 1, .stream = 2, .threshold = 9, .scale = 1, .add = false, .stream_at = nullptr};
  at::Tensor y = at::empty_like(x);
  EXPECT_NO_THROW(
      dropout(FloatType::kF32, x.const_data_ptr(), y.mutable_data_ptr(), 100, args, nullptr));
  EXPECT_THROW(
      dropout(FloatType::kF32, host.const_data_ptr(), y.mutable_data_ptr(), 100, args, nullptr),
      c10::Error);
  const uint64_t stream = 0;
  DropoutArgs of_host = args;
  of_host.stream_at = &stream;
  EXPECT_THROW(
      dropout(FloatType::kF32, x.const_data_ptr(), y.mutable_data_ptr(), 100, of_host, nullptr),
      c10::Error);
  const stand_in::MemoryGuard guard;
  EXPECT_DEATH(printf("%f", x.const_data_ptr<float>()[0]), "");
}

TEST(StandIn, ACapturedPassRunsOnlyWhenItIsReplayed) {
  const std::unique_ptr<GraphArena> arena = make_graph_arena(stand_in::device());
  at::Tensor sum = at::zeros({3}, on_device());
  const at::Tensor x = at::ones({3}, on_device());
  const auto body = [&] { sum.add_((x * 2).to(at::kBFloat16).to(at::kFloat)); };
  const std::unique_ptr<CudaGraph> graph = arena->capture(body);
  EXPECT_EQ(graph->nodes(), 4);
  EXPECT_EQ(sum.cpu().sum().item<float>(), 0);
  graph->replay();
  x.fill_(10);
  graph->replay();
  EXPECT_EQ(sum.cpu().sum().item<float>(), 3 * (2 + 20));
  EXPECT_THROW(arena->capture([&] { (void)sum.cpu(); }), c10::Error);
  EXPECT_THROW(arena->capture([&] { (void)there(at::ones({3})); }), c10::Error);
  const at::TensorOptions pinned = at::TensorOptions().pinned_memory(true);
  EXPECT_THROW(arena->capture([&] { (void)at::empty({3}, pinned); }), c10::Error);
  at::Tensor staged = at::empty({3}, pinned);
  EXPECT_THROW(arena->capture([&] {
    sum.add_(x);
    staged.reset();
  }),
               c10::Error);
  EXPECT_NO_THROW((void)sum.cpu());  // the failed capture is over
}

}  // namespace
}  // namespace lft::test::device_test
