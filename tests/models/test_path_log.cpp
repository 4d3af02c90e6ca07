// Graph nodes record the module that created them.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/function.h>

#include <set>

#include "models/base/call.h"
#include "models/base/path_log.h"
#include "models/layers/recompute.h"

namespace lft::path_log_test {
using namespace lft::layers;
namespace {

struct ScaleImpl : torch::nn::Module {
  explicit ScaleImpl(double by) : by_(by) {}
  at::Tensor forward(const at::Tensor& x) { return (x * by_).exp(); }
  double by_;
};
struct PairImpl : torch::nn::Module {
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor y = call_indexed("parts", 0, std::make_shared<ScaleImpl>(2), x) + 1;
    return call_indexed("parts", 1, std::make_shared<ScaleImpl>(3), y);
  }
};

/// Paths from the loss backwards, by node.
std::vector<std::string> paths(const PathLog& log, const at::Tensor& loss) {
  std::vector<std::string> out;
  for (std::shared_ptr<torch::autograd::Node> node = loss.grad_fn(); node;
       node = node->next_edge(0).function) {
    if (node->name() == "torch::autograd::AccumulateGrad") break;
    out.push_back(node->name() + " " + log.path_of(node->sequence_nr()));
  }
  return out;
}

TEST(PathLog, NamesTheInnermostCall) {
  const PathLog log;
  const at::Tensor x = at::ones({2}).requires_grad_();
  const at::Tensor loss = call("pair", std::make_shared<PairImpl>(), x).sum();
  EXPECT_EQ(paths(log, loss),
            (std::vector<std::string>{"SumBackward0 ", "ExpBackward0 pair.parts.1",
                                      "MulBackward1 pair.parts.1", "AddBackward1 pair",
                                      "ExpBackward0 pair.parts.0", "MulBackward1 pair.parts.0"}));
}

TEST(PathLog, ForgetsAndCountsNothingWithoutGraph) {
  PathLog log;
  const at::Tensor x = at::ones({2}).requires_grad_();
  const at::Tensor loss = call("pair", std::make_shared<PairImpl>(), x).sum();
  log.clear();
  EXPECT_EQ(log.path_of(loss.grad_fn()->sequence_nr()), "");
  {
    const at::NoGradGuard no_grad;
    call("pair", std::make_shared<PairImpl>(), x);
  }
  const at::Tensor again = call("later", std::make_shared<ScaleImpl>(1), x);
  EXPECT_EQ(paths(log, again),
            (std::vector<std::string>{"ExpBackward0 later", "MulBackward1 later"}));
}

TEST(PathLog, FollowsABlockThatRunsAgain) {
  const PathLog log;
  std::set<std::string> seen;
  struct Owner : torch::nn::Module {
  } owner;
  const at::Tensor x = at::ones({2}).requires_grad_();
  const auto body = [&](const at::Tensor& input) {
    const at::Tensor y = call_indexed("layers", 3, std::make_shared<ScaleImpl>(2), input);
    if (y.grad_fn()) seen.insert(log.path_of(y.grad_fn()->sequence_nr()));
    return y;
  };
  const RecomputeGuard every(1);
  recompute(owner, x, body).sum().backward();
  EXPECT_EQ(seen, (std::set<std::string>{"layers.3"}));
}

TEST(PathLog, SurvivesAnErrorInTheMiddle) {
  struct ThrowsImpl : torch::nn::Module {
    at::Tensor forward(const at::Tensor&) { throw std::runtime_error("here"); }
  };
  const PathLog log;
  const at::Tensor x = at::ones({2}).requires_grad_();
  EXPECT_THROW(call("bad", std::make_shared<ThrowsImpl>(), x), std::runtime_error);
  const at::Tensor after = x * 2;
  EXPECT_EQ(log.path_of(after.grad_fn()->sequence_nr()), "");
}

}  // namespace
}  // namespace lft::path_log_test
