// Lion against the paper's algorithm 2 (Chen et al. 2023, arXiv 2302.06675) in double precision.
#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>

#include <cmath>

#include "src/train/optim/lion.h"
#include "src/train/optim/optimizer.h"

namespace lft::lion_test {
using namespace lft::lora;
using namespace lft::ops;
using namespace lft::train;
namespace {

constexpr double kLr = 0.01, kDecay = 0.1, kClip = 3;
constexpr std::array<double, 2> kBetas = {0.9, 0.99};
constexpr double kUnit = 0x1p-24;  // half an ulp of 1

at::Tensor drawn(at::IntArrayRef shape, uint64_t seed) {
  return at::randn(shape, at::detail::createCPUGenerator(seed));
}

/// One tensor's weights and moments by the paper's formula, and the error bound of float32.
struct Paper {
  std::vector<double> x, m, x_error, m_error;

  explicit Paper(const at::Tensor& start) : m(start.numel(), 0), m_error(start.numel(), 0) {
    const at::Tensor flat = start.detach().reshape(-1).to(at::kDouble);
    x.assign(flat.const_data_ptr<double>(), flat.const_data_ptr<double>() + flat.numel());
    x_error.assign(x.size(), 0);
  }

  void step(const at::Tensor& gradient, double clip, double lr) {
    const at::Tensor flat = gradient.reshape(-1).to(at::kDouble);
    for (size_t i = 0; i < x.size(); ++i) {
      const double g = flat.const_data_ptr<double>()[i] * clip;
      const double mean = kBetas[0] * m[i] + (1 - kBetas[0]) * g;
      // The clip, its product, two constants, two products and a sum are rounded.
      const double mean_error = m_error[i] + 7 * kUnit * (std::abs(m[i]) + std::abs(g));
      ASSERT_GT(std::abs(mean), mean_error) << "the sign is left to rounding, draw another seed";
      const double sign = mean > 0 ? 1 : -1;
      x_error[i] += 4 * kUnit * (std::abs(x[i]) + lr);  // two constants, a product and a difference
      x[i] = x[i] * (1 - lr * kDecay) - lr * sign;
      m_error[i] += 7 * kUnit * (std::abs(m[i]) + std::abs(g));
      m[i] = kBetas[1] * m[i] + (1 - kBetas[1]) * g;
    }
  }
};

void expect_within(const at::Tensor& got, const std::vector<double>& wanted,
                   const std::vector<double>& error, const std::string& what) {
  const at::Tensor flat = got.detach().reshape(-1);
  for (size_t i = 0; i < wanted.size(); ++i)
    ASSERT_NEAR(flat.const_data_ptr<float>()[i], wanted[i], error[i]) << what << ", element " << i;
}

TEST(Lion, TenStepsAreThePapers) {
  const std::vector<std::vector<int64_t>> shapes = {{5}, {16, 24}, {3, 1, 7}, {4097}};
  std::vector<Trainable> list;
  std::vector<Paper> paper;
  for (size_t i = 0; i < shapes.size(); ++i) {
    list.push_back({"layer" + std::to_string(i), "llm", drawn(shapes[i], i).requires_grad_()});
    paper.emplace_back(list.back().tensor);
  }
  Optimizer optimizer(list, param_groups(list, kLr, -1),
                      make_lion({.betas = kBetas, .weight_decay = kDecay}));
  for (int64_t step = 1; step <= 10; ++step) {
    const double factor = 1.0 / static_cast<double>(step);
    double squares = 0;
    for (size_t i = 0; i < list.size(); ++i) {
      const bool absent = (step + static_cast<int64_t>(i)) % 4 == 0;
      const at::Tensor gradient = drawn(shapes[i], 100 * step + i) * (step == 5 ? 1e-3 : 1);
      list[i].tensor.mutable_grad() = absent ? at::Tensor() : gradient;
      if (!absent) squares += gradient.to(at::kDouble).square().sum().item<double>();
    }
    const double clip = std::min(1.0, kClip / (std::sqrt(squares) + 1e-6));
    const GradVerdict verdict = check_gradients(optimizer.gradients(), 1, kClip, {});
    optimizer.step(factor, verdict);
    optimizer.commit(!read_stats(verdict).found_inf);
    for (size_t i = 0; i < list.size(); ++i) {
      if (list[i].tensor.grad().defined()) {
        ASSERT_NO_FATAL_FAILURE(paper[i].step(list[i].tensor.grad(), clip, kLr * factor));
      }
      const std::string what = "step " + std::to_string(step) + ", tensor " + std::to_string(i);
      expect_within(list[i].tensor, paper[i].x, paper[i].x_error, what);
      expect_within(optimizer.slots()[i].moment("exp_avg"), paper[i].m, paper[i].m_error,
                    "moment, " + what);
    }
  }
  EXPECT_EQ(optimizer.slots()[0].steps, 8);
}

TEST(Lion, KeepsOneMoment) {
  const at::Tensor weight = at::ones({8, 4}).requires_grad_();
  const Optimizer optimizer({{"w", "llm", weight}}, {{"base", 1, {0}}}, make_lion({}));
  ASSERT_EQ(moment_tensors(optimizer.slots()[0]).size(), 1u);
  EXPECT_EQ(moment_tensors(optimizer.slots()[0])[0].first, "exp_avg.w");
  EXPECT_EQ(moment_bytes(*make_lion({}), {8, 4}), 4.0 * 8 * 4);
}

/// sign(0) is 0, in the paper as here.
TEST(Lion, AZeroGradientOnlyDecays) {
  const at::Tensor weight = at::full({3}, 2.0f).requires_grad_();
  Optimizer optimizer({{"w", "llm", weight}}, {{"base", 0.5, {0}}},
                      make_lion({.weight_decay = 0.5}));
  weight.mutable_grad() = at::zeros({3});
  optimizer.step(1, check_gradients(optimizer.gradients(), 1, 0, {}));
  EXPECT_TRUE(at::equal(weight, at::full({3}, 1.5f)));
}

}  // namespace
}  // namespace lft::lion_test
