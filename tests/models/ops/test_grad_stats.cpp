// The gradient check on the CPU against its reference, against torch's own ops and against closed
// forms.
#include <cmath>
#include <limits>

#include "models/ops/update/chunked.h"
#include "models/ops/update/grad_stats.h"
#include "models/step_support.h"
#include "models/tiny.h"

namespace lft::test::grad_stats_test {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN(),
                kInf = std::numeric_limits<float>::infinity();
constexpr float kMax = std::numeric_limits<float>::max();

GradStats check(const std::vector<at::Tensor>& gradients, double inv_scale = 1, double max_norm = 0,
                const at::Tensor& loss = {}) {
  return read_stats(check_gradients(gradients, inv_scale, max_norm, loss));
}

/// The reference over the same memory; gradients contiguous or undefined.
GradStats reference(const std::vector<at::Tensor>& gradients, double inv_scale, double max_norm) {
  std::vector<GradTensor> tensors;
  for (const at::Tensor& gradient : gradients) {
    if (!gradient.defined()) {
      tensors.push_back({});
    } else {
      tensors.push_back(
          {gradient.mutable_data_ptr(), gradient.numel(), 0, *float_type(gradient.scalar_type())});
    }
  }
  std::vector<double> squares(tensors.size());
  GradControl control;
  GradStatsArgs args;
  args.tensors = tensors.data();
  args.count = static_cast<int64_t>(tensors.size());
  args.inv_scale = static_cast<float>(inv_scale);
  args.max_norm = max_norm;
  args.squares = squares.data();
  args.control = &control;
  grad_stats_ref(args);
  GradStats stats;
  stats.found_inf = control.found_inf != 0;
  stats.first_bad = control.first_bad;
  stats.norm = std::sqrt(control.squared_norm);
  stats.clip = control.clip;
  for (const double sum : squares) stats.norms.push_back(std::sqrt(sum));
  return stats;
}

/// Norms are sums of up to `terms` squares in double, in different orders: errors of terms * 2^-53
/// each.
void expect_near(double got, double want, int64_t terms) {
  if (!std::isfinite(want)) {
    EXPECT_FALSE(std::isfinite(got));
    return;
  }
  EXPECT_NEAR(got, want, static_cast<double>(terms + 1) * 0x1p-52 * want);
}

void expect_equal(const GradStats& got, const GradStats& want, int64_t terms) {
  EXPECT_EQ(got.found_inf, want.found_inf);
  EXPECT_EQ(got.loss_finite, want.loss_finite);
  EXPECT_TRUE(std::isnan(want.loss) ? std::isnan(got.loss) : got.loss == want.loss) << got.loss;
  EXPECT_EQ(got.first_bad, want.first_bad);
  expect_near(got.norm, want.norm, terms);
  EXPECT_NEAR(got.clip, want.clip, 0x1p-23 * want.clip);
  ASSERT_EQ(got.norms.size(), want.norms.size());
  for (size_t i = 0; i < want.norms.size(); ++i) expect_near(got.norms[i], want.norms[i], terms);
}

/// Compares bits, with every NaN equal to every NaN.
void expect_same_values(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor nan_a = a.isnan(), nan_b = b.isnan();
  EXPECT_TRUE(at::equal(nan_a, nan_b));
  EXPECT_TRUE(same_bits(a.masked_fill(nan_a, 0), b.masked_fill(nan_b, 0)));
}

TEST(CheckGradients, NormsAreL2AndAbsentCountsAsNothing) {
  const GradStats stats =
      check({at::tensor({3.0f, 4.0f}), at::Tensor(), at::full({3, 3}, 4.0f), at::empty({0})});
  EXPECT_EQ(stats.first_bad, -1);
  EXPECT_FALSE(stats.found_inf);
  EXPECT_DOUBLE_EQ(stats.norm, 13);
  EXPECT_EQ(stats.norms, (std::vector<double>{5, 0, 12, 0}));
}

TEST(CheckGradients, NothingAtAll) {
  for (const std::vector<at::Tensor>& none :
       {std::vector<at::Tensor>{}, {at::Tensor(), at::Tensor()}}) {
    const GradStats stats = check(none, 0.5, 1, at::full({}, 2.0f));
    EXPECT_EQ(stats.norm, 0);
    EXPECT_EQ(stats.clip, 1);
    EXPECT_FALSE(stats.found_inf);
    EXPECT_EQ(stats.norms.size(), none.size());
  }
}

TEST(CheckGradients, FindsTheFirstBadTensorWhereverTheElementIs) {
  for (const at::ScalarType dtype : kGradTypes) {
    for (const float bad : {kNan, kInf, -kInf}) {
      for (const int64_t place : {0, 7, 8, 15, 16383, 16384, 32768, 70000, 70001}) {
        for (const double inv_scale : {1.0, 1.0 / 1024}) {
          at::Tensor gradient = at::ones({70002}, dtype);
          gradient[place] = bad;
          const GradStats stats =
              check({at::ones({5}), at::Tensor(), gradient, at::full({1}, kNan)}, inv_scale, 1);
          EXPECT_EQ(stats.first_bad, 2) << bad << " at " << place;
          EXPECT_TRUE(stats.found_inf);
          EXPECT_TRUE(stats.loss_finite);
          EXPECT_FALSE(std::isfinite(stats.norm));
          EXPECT_EQ(stats.clip, 1);
          EXPECT_DOUBLE_EQ(stats.norms[0], std::sqrt(5) * inv_scale);
        }
      }
    }
  }
}

TEST(CheckGradients, LargeAndDenormalGradientsDoNotLeaveTheDouble) {
  const GradStats stats = check({at::full({1000}, kMax), at::full({9}, 0x1p-149f)}, 1, 1);
  EXPECT_EQ(stats.first_bad, -1);
  EXPECT_NEAR(stats.norm / (static_cast<double>(kMax) * std::sqrt(1000.0)), 1, 1e-12);
  EXPECT_EQ(stats.norms[1], 3 * 0x1p-149);
}

TEST(CheckGradients, ClipsAsTorchDoes) {
  const auto clip = [](float norm, double max_norm) {
    return check({at::full({1}, norm)}, 1, max_norm).clip;
  };
  EXPECT_EQ(clip(2, 1), static_cast<float>(1 / (2 + 1e-6)));
  EXPECT_EQ(clip(0.5, 1), 1);
  EXPECT_EQ(clip(0, 1), 1);
  EXPECT_LT(clip(1, 1), 1);  // 1 / (1 + 1e-6)
  EXPECT_EQ(clip(100, 0), 1);
}

TEST(CheckGradients, EqualsTheReference) {
  for (const double inv_scale : {1.0, 1.0 / 65536, 0.3}) {
    std::vector<at::Tensor> gradients = {at::Tensor()};
    uint64_t seed = 0;
    for (const int64_t count : {0, 1, 3, 8, 17, 1023, 16384, 16385, 100003}) {
      for (const at::ScalarType dtype : kGradTypes) {
        gradients.push_back(normal({count}, ++seed, dtype));
        gradients.push_back(normal({count + 1}, ++seed, dtype).narrow(0, 1, count));  // misaligned
      }
    }
    std::vector<at::Tensor> want_gradients = copies(gradients);
    const GradStats got = check(gradients, inv_scale, 2),
                    want = reference(want_gradients, inv_scale, 2);
    expect_equal(got, want, 1000000);
    for (size_t i = 1; i < gradients.size(); ++i)
      EXPECT_TRUE(same_bits(gradients[i], want_gradients[i])) << i;
  }
}

TEST(CheckGradients, UnscalesEveryBitPatternOfTheShortTypesAsTheReference) {
  for (const at::ScalarType dtype : {at::kBFloat16, at::kHalf}) {
    for (const double inv_scale : {1.0, 0.3, 3.0, 1.0 / 4096}) {
      const at::Tensor patterns = at::arange(-32768, 32768, at::kShort).view(dtype);
      std::vector<at::Tensor> got = {patterns.clone()}, want = {patterns.clone()};
      const bool found_inf = check(got, inv_scale).found_inf;
      EXPECT_EQ(found_inf, reference(want, inv_scale, 0).found_inf);
      expect_same_values(got[0], want[0]);
      // Each alone: the finite ones sum up correctly.
      std::vector<at::Tensor> finite = {patterns.masked_fill(want[0].isfinite().logical_not(), 0)};
      std::vector<at::Tensor> same = copies(finite);
      expect_equal(check(finite, inv_scale), reference(same, inv_scale, 0), 65536);
    }
  }
}

TEST(CheckGradients, AgreesWithTorchsOwnUnscale) {
  for (const float inv_scale : {1.0f, 1.0f / 65536, 0.37f}) {
    for (const int bad : {-1, 0, 2}) {
      std::vector<at::Tensor> gradients;
      for (const int64_t count : {5, 40000, 129}) gradients.push_back(normal({count}, count));
      if (bad >= 0) gradients[bad][gradients[bad].numel() - 1] = bad == 0 ? kNan : kInf;
      std::vector<at::Tensor> torchs = copies(gradients);
      at::Tensor found_inf = at::zeros({1});
      at::_amp_foreach_non_finite_check_and_unscale_(torchs, found_inf, at::full({1}, inv_scale));
      EXPECT_EQ(check(gradients, inv_scale).found_inf, found_inf.item<float>() != 0);
      for (size_t i = 0; i < gradients.size(); ++i) expect_same_values(gradients[i], torchs[i]);
    }
  }
}

TEST(CheckGradients, ThreadsChangeNoBit) {
  std::vector<at::Tensor> gradients;
  for (int i = 0; i < 40; ++i)
    gradients.push_back(normal({i % 4 == 0 ? 90000 : 17 * i}, i, kGradTypes[i % 3]));
  std::vector<std::vector<at::Tensor>> results;
  for (const int threads : {1, 2, 3}) {
    const Threads guard(threads);
    std::vector<at::Tensor> own = copies(gradients);
    const GradVerdict verdict = check_gradients(own, 0.3, 1, at::full({}, 1.0f));
    own.push_back(verdict.control);
    own.push_back(verdict.squares);
    results.push_back(own);
  }
  for (size_t run = 1; run < results.size(); ++run) {
    for (size_t i = 0; i < results[0].size(); ++i)
      EXPECT_TRUE(same_bits(results[run][i], results[0][i])) << i;
  }
}

TEST(CheckGradients, ThousandsOfTensors) {
  std::vector<at::Tensor> gradients;
  for (int i = 0; i < 5000; ++i) gradients.push_back(at::full({i % 4}, 2.0f));
  GradStats stats = check(gradients, 0.5);
  EXPECT_DOUBLE_EQ(stats.norm, std::sqrt(1250 * (0 + 1 + 2 + 3)));
  EXPECT_EQ(stats.norms[4999], std::sqrt(3));
  gradients[4999][2] = kNan;
  EXPECT_EQ(check(gradients).first_bad, 4999);
}

TEST(CheckGradients, AnUnscaleThatOverflowsIsBad) {
  EXPECT_TRUE(check({at::full({3}, kMax)}, 2).found_inf);
  EXPECT_FALSE(check({at::full({3}, kMax / 2)}, 2).found_inf);
  EXPECT_TRUE(check({at::full({3}, 40000.0f).to(at::kHalf)}, 2).found_inf);
  EXPECT_FALSE(check({at::full({3}, 40000.0f).to(at::kBFloat16)}, 2).found_inf);
}

TEST(CheckGradients, ScaleOneWritesNothing) {
  const at::Tensor gradient =
      at::full({20}, 0x7F81, at::kShort).view(at::kBFloat16);  // signalling NaNs
  const at::Tensor before = gradient.clone();
  check({gradient}, 1, 1);
  EXPECT_TRUE(same_bits(gradient, before));
}

TEST(CheckGradients, StridedGradientsAreUnscaledToo) {
  const at::Tensor storage = normal({4, 6}, 1), before = storage.clone();
  const double norm = check({storage.t(), storage.narrow(1, 0, 0)}, 0.5).norm;
  EXPECT_TRUE(at::equal(storage, before * 0.5));
  EXPECT_NEAR(norm, (before * 0.5).norm().item<float>(), 1e-6);
}

TEST(CheckGradients, TheLossIsCheckedInAnyDtype) {
  const at::Tensor gradient = at::ones({2});
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) {
    for (const float value : {kNan, kInf, -kInf, 3.0f}) {
      const GradStats stats =
          check({gradient}, 1, 0, at::full({1}, value, dtype).set_requires_grad(true));
      EXPECT_EQ(stats.loss_finite, std::isfinite(value));
      EXPECT_TRUE(std::isnan(value) ? std::isnan(stats.loss) : stats.loss == value) << stats.loss;
      EXPECT_EQ(stats.found_inf, !std::isfinite(value));
      EXPECT_EQ(stats.first_bad, -1);
    }
  }
  EXPECT_TRUE(check({gradient}, 1, 0, at::full({}, 1e300, at::kDouble)).loss_finite);
}

TEST(CheckGradients, RefusesWhatItCannotCheck) {
  const at::Tensor good = at::ones({2});
  const auto said = [](const std::vector<at::Tensor>& gradients, double inv_scale, double max_norm,
                       const at::Tensor& loss = {}) {
    return error_of([&] { check_gradients(gradients, inv_scale, max_norm, loss); },
                    ErrorKind::kInternal)
        .what;
  };
  EXPECT_NE(
      said({good, at::ones({2}, at::kDouble)}, 1, 1).find("gradient 1 is not a dense float32"),
      std::string::npos);
  EXPECT_NE(said({good.to_sparse()}, 1, 1).find("gradient 0 is not a dense"), std::string::npos);
  EXPECT_EQ(said({good, at::ones({2}, at::TensorOptions().device(at::kMeta))}, 1, 1),
            "gradients on two devices");
  for (const double inv_scale : {0.0, -1.0, 1e300, 1e-60, static_cast<double>(kNan)}) {
    EXPECT_EQ(said({good}, inv_scale, 1), "inv_scale is not a positive number") << inv_scale;
  }
  EXPECT_EQ(said({good}, 1, -1), "max_norm is negative");
  EXPECT_EQ(said({good}, 1, kNan), "max_norm is negative");
  EXPECT_EQ(said({good}, 1, 1, good), "the loss is not one number");
}

}  // namespace
}  // namespace lft::test::grad_stats_test
