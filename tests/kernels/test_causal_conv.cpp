// The causal convolution: the reference against numbers worked out by hand and finite differences,
// the kernels against the reference.
#include <gtest/gtest.h>

#include <cmath>

#include "kernels/arena.h"
#include "kernels/causal_conv/causal_conv.h"

namespace lft::causal_conv_test {
namespace {

struct Case {
  Case(FloatType type, const std::vector<int64_t>& lengths, int64_t channels, int64_t taps) {
    std::vector<int32_t> starts = {0};
    for (const int64_t length : lengths)
      starts.push_back(starts.back() + static_cast<int32_t>(length));
    const auto sequences = static_cast<int64_t>(lengths.size());
    args = {.type = type,
            .tokens = starts.back(),
            .channels = channels,
            .taps = taps,
            .sequences = sequences};
    x = normal(type, args.tokens * channels, 1);
    weight = normal(FloatType::kF32, taps * channels, 2);
    before = normal(type, sequences * (taps - 1) * channels, 3);
    dout = normal(type, args.tokens * channels, 4);
    out = arena.add(type, args.tokens * channels);
    dx = arena.add(type, args.tokens * channels);
    dweight = arena.add(FloatType::kF32, taps * channels);
    first_tokens = arena.add(FloatType::kF32, sequences + 1);
    std::memcpy(arena.data(first_tokens), starts.data(), starts.size() * sizeof(int32_t));
  }
  size_t normal(FloatType type, int64_t count, uint32_t seed) {
    const size_t index = arena.add(type, count);
    arena.fill_normal(index, seed, 1);
    return index;
  }
  template <class T = void>
  T* at(uint8_t* base, size_t index) const {
    return reinterpret_cast<T*>(base + arena.arrays()[index].offset);
  }
  CausalConvArgs args_at(uint8_t* base) const {
    CausalConvArgs of = args;
    of.x = at(base, x);
    of.weight = at<float>(base, weight);
    of.starts = at<int32_t>(base, first_tokens);
    of.before = at(base, before);
    return of;
  }
  void run_ref() {
    uint8_t* base = arena.bytes().data();
    causal_conv_ref(args_at(base), at(base, out));
    causal_conv_backward_ref(args_at(base), at(base, dout), at(base, dx), at<float>(base, dweight));
  }

  CausalConvArgs args;
  test::Arena arena;
  size_t x, weight, before, dout, out, dx, dweight, first_tokens;
};

TEST(CausalConvRef, WeighsTheLastInputsOfItsOwnSequence) {
  Case c(FloatType::kF32, {2, 1}, 1, 3);
  const float x[] = {1, 2, 5}, weight[] = {100, 10, 1}, before[] = {3, 4, 7, 8};
  for (int i = 0; i < 3; ++i) {
    c.arena.set(c.x, i, x[i]);
    c.arena.set(c.weight, i, weight[i] / 1000);
  }
  for (int i = 0; i < 4; ++i) c.arena.set(c.before, i, before[i]);
  c.run_ref();
  const double sums[] = {.341, .412, .785};
  for (int i = 0; i < 3; ++i)
    EXPECT_NEAR(c.arena.get(c.out, i), sums[i] / (1 + std::exp(-sums[i])), 1e-6);
}

double loss(Case& c) {
  uint8_t* base = c.arena.bytes().data();
  causal_conv_ref(c.args_at(base), c.at(base, c.out));
  double sum = 0;
  for (int64_t i = 0; i < c.arena.arrays()[c.out].count; ++i)
    sum += double{c.arena.get(c.out, i)} * c.arena.get(c.dout, i);
  return sum;
}

TEST(CausalConvRef, GradientsAreFiniteDifferences) {
  Case c(FloatType::kF32, {5, 0, 1, 2}, 2, 4);
  c.run_ref();
  const std::vector<std::pair<size_t, size_t>> pairs = {{c.x, c.dx}, {c.weight, c.dweight}};
  for (const auto& [of, gradient] : pairs) {
    for (int64_t i = 0; i < c.arena.arrays()[of].count; ++i) {
      const float value = c.arena.get(of, i), h = 0x1p-7f;
      c.arena.set(of, i, value + h);
      const double more = loss(c);
      c.arena.set(of, i, value - h);
      const double difference = (more - loss(c)) / (2 * h);
      c.arena.set(of, i, value);
      EXPECT_NEAR(c.arena.get(gradient, i), difference, 1e-3 * (1 + std::fabs(difference)));
    }
  }
}

#ifdef LFT_HAVE_CUDA
/// Every element differs by at most `tolerance` times the sum of its magnitude and the typical one.
void expect_near(const Case& got, const Case& want, size_t index, double tolerance) {
  const std::vector<float> g = got.arena.values(index), w = want.arena.values(index);
  double squares = 0;
  for (const float x : w) squares += double{x} * x;
  const double typical = std::sqrt(squares / static_cast<double>(w.size() + 1));
  for (size_t i = 0; i < w.size(); ++i)
    EXPECT_NEAR(g[i], w[i], tolerance * (std::fabs(w[i]) + typical)) << i;
}

Case with_kernels(Case c) {
  test::DeviceArray<uint8_t> bytes(c.arena.bytes());
  const CausalConvArgs args = c.args_at(bytes.data());
  test::DeviceArray<float> workspace(
      std::vector<float>(static_cast<size_t>(causal_conv_workspace(args)), NAN));
  causal_conv(args, c.at(bytes.data(), c.out), nullptr);
  causal_conv_backward(args, c.at(bytes.data(), c.dout), c.at(bytes.data(), c.dx),
                       c.at<float>(bytes.data(), c.dweight), workspace.data(), nullptr);
  c.arena.bytes() = bytes.to_host();
  return c;
}

/// A sum near a rounding boundary may be rounded to the next number, a step of 2^-8 in BF16.
TEST(CausalConvGpu, IsNearTheReference) {
  if (!test::has_gpu()) GTEST_SKIP() << "no GPU";
  for (const FloatType type : {FloatType::kF32, FloatType::kBF16, FloatType::kF16}) {
    for (const int64_t taps : {1, 2, 4, 8}) {
      for (const std::vector<int64_t>& lengths :
           {std::vector<int64_t>{1}, {1, 2, 0, 0, 3, 64, 61, 1}, {200}, {63, 1, 64}}) {
        const Case start(type, lengths, 130, taps);
        Case want = start;
        want.run_ref();
        const Case got = with_kernels(start);
        const double tolerance = 1e-5 + 4 * test::rounding(type);
        expect_near(got, want, got.out, tolerance);
        expect_near(got, want, got.dx, tolerance);
        expect_near(got, want, got.dweight, tolerance);
      }
    }
  }
}

TEST(CausalConvGpu, AFrozenWeightNeedsNoWorkspace) {
  if (!test::has_gpu()) GTEST_SKIP() << "no GPU";
  const Case start(FloatType::kF32, {70}, 3, 4);
  Case got = start;
  test::DeviceArray<uint8_t> bytes(got.arena.bytes());
  causal_conv_backward(got.args_at(bytes.data()), got.at(bytes.data(), got.dout),
                       got.at(bytes.data(), got.dx), nullptr, nullptr, nullptr);
  got.arena.bytes() = bytes.to_host();
  Case want = start;
  want.run_ref();
  expect_near(got, want, got.dx, 1e-5);
  EXPECT_EQ(got.arena.values(got.dweight), start.arena.values(start.dweight));
}
#endif

}  // namespace
}  // namespace lft::causal_conv_test
