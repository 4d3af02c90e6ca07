// The devices of the GPU tests: every test runs on the CPU, so that the tests are tested, and on a
// GPU if there is one. Contains no test.
#pragma once
#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "models/ops/core/precision.h"
#include "src/train/machine/determinism.h"
#include "src/train/machine/device.h"

namespace lft::test {
using namespace lft::ops;
using namespace lft::train;

/// The parameter is "cpu", "gpu", or "stand_in": a simulated device (stand_in/device), if
/// linked in.
class OnDevice : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    make_deterministic(true);  // cuBLAS reads its setting once: before the device is opened
    default_device();          // LibTorch caches whether CUDA is available
    if (on_gpu() && default_device().is_cpu()) GTEST_SKIP() << "no GPU here";
  }
  static bool on_gpu() { return std::string(GetParam()) != "cpu"; }
  static at::Device device() { return on_gpu() ? default_device() : at::Device(at::kCPU); }
};

#ifdef LFT_STAND_IN
#define LFT_DEVICES "stand_in"
#else
#define LFT_DEVICES "cpu", "gpu"
#endif
#define LFT_ON_EACH_DEVICE(suite)                                     \
  INSTANTIATE_TEST_SUITE_P(On, suite, ::testing::Values(LFT_DEVICES), \
                           [](const auto& info) { return std::string(info.param); })

constexpr at::ScalarType kTypes[] = {at::kFloat, at::kBFloat16, at::kHalf};

/// The largest relative error of rounding to a type.
inline double rounding(at::ScalarType type) {
  return type == at::kFloat ? 0x1p-24 : type == at::kBFloat16 ? 0x1p-8 : 0x1p-11;
}
/// For `roundings` roundings, and a float32 sum of `terms` in another order: a random walk of 2^-24
/// each, four deviations.
inline double tolerance(at::ScalarType type, double roundings, double terms) {
  return roundings * rounding(type) + 4 * 0x1p-24 * std::sqrt(terms);
}

inline at::Tensor normal(at::IntArrayRef shape, uint64_t seed) {
  return at::randn(shape, at::detail::createCPUGenerator(seed),
                   at::TensorOptions().dtype(at::kFloat));
}

/// The whole within `tolerance` of its norm, and every element within 16 times that of its own
/// magnitude and the typical one.
inline void expect_close(const at::Tensor& got, const at::Tensor& want, double tolerance,
                         const std::string& what) {
  ASSERT_EQ(got.sizes(), want.sizes()) << what;
  if (want.numel() == 0) return;
  const at::Tensor g = got.detach().cpu().to(at::kDouble), w = want.detach().cpu().to(at::kDouble),
                   error = (g - w).abs();
  ASSERT_TRUE(at::isfinite(g).all().item<bool>()) << what;
  const double norm = w.norm().item<double>(),
               typical = norm / std::sqrt(static_cast<double>(w.numel()));
  EXPECT_LE(error.norm().item<double>(), tolerance * norm + 1e-30) << what;
  EXPECT_LE((error - 16 * tolerance * (w.abs() + typical)).max().item<double>(), 1e-30) << what;
}

/// `op` on leaves on `device` in every type under that compute dtype, against `op` in float32 on
/// the CPU over the same rounded values: result and gradients. Its first `trained` leaves get
/// gradients. op(leaves, device) -> tensor.
template <class Op>
void expect_as_on_cpu(at::Device device, const std::vector<at::Tensor>& values, size_t trained,
                      double roundings, double terms, const std::string& what, const Op& op) {
  for (const at::ScalarType type : kTypes) {
    std::vector<at::Tensor> a, b;
    for (size_t i = 0; i < values.size(); ++i) {
      const at::Tensor rounded = values[i].to(type);
      a.push_back(rounded.to(device).detach().clone().set_requires_grad(i < trained));
      b.push_back(rounded.to(at::kFloat).detach().clone().set_requires_grad(i < trained));
    }
    const auto run = [&](const std::vector<at::Tensor>& leaves, at::ScalarType compute,
                         at::Device where) {
      const ComputeDtypeGuard guard(compute);
      const at::Tensor result = op(leaves, where);
      if (trained > 0)
        result.backward(normal(result.sizes(), 99).to(type).to(where, result.scalar_type()));
      return result;
    };
    const double tolerated = tolerance(type, roundings, terms);
    const std::string name = what + " in " + c10::toString(type);
    expect_close(run(a, type, device), run(b, at::kFloat, at::kCPU), tolerated, name);
    for (size_t i = 0; i < trained; ++i)
      expect_close(a[i].grad(), b[i].grad(), tolerated, name + ", gradient " + std::to_string(i));
  }
}

}  // namespace lft::test
