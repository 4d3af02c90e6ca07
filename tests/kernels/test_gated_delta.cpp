// The gated delta rule: the reference against a closed form and finite differences, the kernels
// against the reference.
#include <gtest/gtest.h>

#include <cmath>

#include "kernels/arena.h"
#include "kernels/gated_delta/gated_delta.h"

namespace lft::gated_delta_test {
namespace {

struct Sizes {
  std::vector<int64_t> lengths;
  int64_t key_heads = 1, heads = 1, d = 1, e = 1;
  bool given_state = false;
  int64_t gap = 0;  // elements between the tokens of q, k and v
};

struct Case {
  Case(FloatType type, const Sizes& of) {
    int64_t tokens = 0;
    std::vector<int32_t> starts = {0};
    for (const int64_t length : of.lengths)
      starts.push_back(static_cast<int32_t>(tokens += length));
    const auto sequences = static_cast<int64_t>(of.lengths.size());
    args = {.type = type,
            .tokens = tokens,
            .sequences = sequences,
            .key_heads = of.key_heads,
            .heads = of.heads,
            .d = of.d,
            .e = of.e,
            .q_stride = of.key_heads * of.d + of.gap,
            .k_stride = of.key_heads * of.d + of.gap,
            .v_stride = of.heads * of.e + of.gap};
    given = of.given_state;
    q = normal(type, tokens * args.q_stride, 1);
    k = normal(type, tokens * args.k_stride, 2);
    v = normal(type, tokens * args.v_stride, 3);
    g = normal(FloatType::kF32, tokens * of.heads, 4);
    beta = normal(FloatType::kF32, tokens * of.heads, 5);
    for (int64_t i = 0; i < tokens * of.heads; ++i) {
      arena.set(g, i, -0.3f * std::fabs(arena.get(g, i)));
      arena.set(beta, i, 1 / (1 + std::exp(-arena.get(beta, i))));
    }
    const int64_t states = sequences * of.heads * of.d * of.e;
    state = normal(FloatType::kF32, states, 6);
    last = arena.add(FloatType::kF32, states);
    out = arena.add(type, tokens * of.heads * of.e);
    dout = normal(type, tokens * of.heads * of.e, 7);
    dq = arena.add(type, tokens * of.key_heads * of.d);
    dk = arena.add(type, tokens * of.key_heads * of.d);
    dv = arena.add(type, tokens * of.heads * of.e);
    dg = arena.add(FloatType::kF32, tokens * of.heads);
    dbeta = arena.add(FloatType::kF32, tokens * of.heads);
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
  GatedDeltaArgs args_at(uint8_t* base) const {
    GatedDeltaArgs of = args;
    of.q = at(base, q);
    of.k = at(base, k);
    of.v = at(base, v);
    of.g = at<float>(base, g);
    of.beta = at<float>(base, beta);
    of.starts = at<int32_t>(base, first_tokens);
    of.state = given ? at<float>(base, state) : nullptr;
    return of;
  }
  GatedDeltaGradients gradients_at(uint8_t* base) const {
    return {at(base, dout), at(base, dq),        at(base, dk),
            at(base, dv),   at<float>(base, dg), at<float>(base, dbeta)};
  }
  void run_ref() {
    uint8_t* base = arena.bytes().data();
    gated_delta_ref(args_at(base), at(base, out), at<float>(base, last));
    gated_delta_backward_ref(args_at(base), gradients_at(base));
  }

  GatedDeltaArgs args;
  bool given = false;
  test::Arena arena;
  size_t q, k, v, g, beta, state, last, out, dout, dq, dk, dv, dg, dbeta, first_tokens;
};

/// With orthogonal keys, beta 1 and no decay the state is a table: it answers a key with its value,
/// and the last value of a key replaces earlier ones.
TEST(GatedDeltaRef, IsATableOfKeysAndValues) {
  Case c(FloatType::kF32, {.lengths = {4}, .d = 3, .e = 2});
  const float keys[4][3] = {{1, 0, 0}, {0, 2, 0}, {3, 0, 0}, {0, 0, 4}};
  const float queries[4][3] = {{1, 0, 0}, {1, 0, 0}, {5, 0, 0}, {0, 1, 0}};
  const float values[4][2] = {{1, 2}, {3, 4}, {5, 6}, {7, 8}};
  const int answer[4] = {0, 0, 2, 1};
  for (int i = 0; i < 4; ++i) {
    c.arena.set(c.g, i, 0);
    c.arena.set(c.beta, i, 1);
    for (int r = 0; r < 3; ++r) {
      c.arena.set(c.k, 3 * i + r, keys[i][r]);
      c.arena.set(c.q, 3 * i + r, queries[i][r]);
    }
    for (int j = 0; j < 2; ++j) c.arena.set(c.v, 2 * i + j, values[i][j]);
  }
  c.run_ref();
  for (int i = 0; i < 4; ++i) {
    for (int j = 0; j < 2; ++j)
      EXPECT_NEAR(c.arena.get(c.out, 2 * i + j), values[answer[i]][j] / std::sqrt(3.0), 1e-5);
  }
}

TEST(GatedDeltaRef, DecaysItsState) {
  Case c(FloatType::kF32, {.lengths = {2}, .d = 2, .e = 1, .given_state = true});
  for (int i = 0; i < 2; ++i) c.arena.set(c.beta, i, 0);
  c.run_ref();
  const double by = std::exp(double{c.arena.get(c.g, 0)} + double{c.arena.get(c.g, 1)});
  for (int i = 0; i < 2; ++i)
    EXPECT_NEAR(c.arena.get(c.last, i), c.arena.get(c.state, i) * by, 1e-6);
}

double loss(Case& c) {
  uint8_t* base = c.arena.bytes().data();
  gated_delta_ref(c.args_at(base), c.at(base, c.out), nullptr);
  double sum = 0;
  for (int64_t i = 0; i < c.arena.arrays()[c.out].count; ++i)
    sum += double{c.arena.get(c.out, i)} * c.arena.get(c.dout, i);
  return sum;
}

TEST(GatedDeltaRef, GradientsAreFiniteDifferences) {
  Case c(
      FloatType::kF32,
      {.lengths = {5, 1, 0, 3}, .key_heads = 2, .heads = 4, .d = 3, .e = 2, .given_state = true});
  c.run_ref();
  const std::vector<std::pair<size_t, size_t>> pairs = {
      {c.q, c.dq}, {c.k, c.dk}, {c.v, c.dv}, {c.g, c.dg}, {c.beta, c.dbeta}};
  for (const auto& [of, gradient] : pairs) {
    for (int64_t i = 0; i < c.arena.arrays()[of].count; ++i) {
      const float value = c.arena.get(of, i), h = 0x1p-7f;
      c.arena.set(of, i, value + h);
      const double more = loss(c);
      c.arena.set(of, i, value - h);
      const double difference = (more - loss(c)) / (2 * h);
      c.arena.set(of, i, value);
      EXPECT_NEAR(c.arena.get(gradient, i), difference, 2e-3 * (1 + std::fabs(difference)));
    }
  }
}

#ifdef LFT_HAVE_CUDA
/// The whole within `tolerance` of its norm, and no element far from its own value.
void expect_near(const Case& got, const Case& want, size_t index, double tolerance,
                 const std::string& what) {
  double error = 0, norm = 0, largest = 0;
  const std::vector<float> g = got.arena.values(index), w = want.arena.values(index);
  for (size_t i = 0; i < w.size(); ++i) {
    const double off = double{g[i]} - w[i];
    ASSERT_TRUE(std::isfinite(g[i])) << what;
    error += off * off;
    norm += double{w[i]} * w[i];
    largest = std::max(largest, std::fabs(off) - 16 * tolerance * std::fabs(w[i]));
  }
  EXPECT_LE(std::sqrt(error), tolerance * std::sqrt(norm) + 1e-30) << what;
  EXPECT_LE(largest, 16 * tolerance * std::sqrt(norm / static_cast<double>(w.size() + 1)) + 1e-30)
      << what;
}

/// The case with the results of the kernels.
Case with_kernels(Case c) {
  test::DeviceArray<uint8_t> bytes(c.arena.bytes());
  const GatedDeltaArgs args = c.args_at(bytes.data());
  test::DeviceArray<float> workspace(
      std::vector<float>(static_cast<size_t>(gated_delta_workspace(args)), NAN));
  gated_delta(args, c.at(bytes.data(), c.out), c.at<float>(bytes.data(), c.last), nullptr);
  gated_delta_backward(args, c.gradients_at(bytes.data()), workspace.data(), nullptr);
  c.arena.bytes() = bytes.to_host();
  return c;
}

void expect_gpu_near_ref(const Case& start, const std::string& what) {
  Case want = start;
  want.run_ref();
  const Case got = with_kernels(start);
  const double narrow = 2 * test::rounding(start.args.type) + 1e-5;
  expect_near(got, want, got.out, narrow, what + " out");
  expect_near(got, want, got.last, 1e-5, what + " last");
  expect_near(got, want, got.dq, narrow, what + " dq");
  expect_near(got, want, got.dk, narrow, what + " dk");
  expect_near(got, want, got.dv, narrow, what + " dv");
  expect_near(got, want, got.dg, 1e-4, what + " dg");
  expect_near(got, want, got.dbeta, 1e-4, what + " dbeta");
}

TEST(GatedDeltaGpu, IsNearTheReference) {
  if (!test::has_gpu()) GTEST_SKIP() << "no GPU";
  for (const FloatType type : {FloatType::kF32, FloatType::kBF16, FloatType::kF16}) {
    expect_gpu_near_ref(
        Case(type, {.lengths = {65, 1, 0, 3}, .key_heads = 1, .heads = 2, .d = 8, .e = 5}),
        "small");
    expect_gpu_near_ref(Case(type, {.lengths = {7},
                                    .key_heads = 2,
                                    .heads = 2,
                                    .d = 70,
                                    .e = 40,
                                    .given_state = true,
                                    .gap = 3}),
                        "odd");
  }
}

TEST(GatedDeltaGpu, IsNearTheReferenceForSeveralChunks) {
  if (!test::has_gpu()) GTEST_SKIP() << "no GPU";
  expect_gpu_near_ref(
      Case(FloatType::kF32, {.lengths = {129, 64, 63}, .d = 16, .e = 3, .given_state = true}),
      "chunks");
  expect_gpu_near_ref(Case(FloatType::kBF16, {.lengths = {20}, .d = 128, .e = 128}), "head of 128");
}

/// Decays that underflow, and beta 0 and 1.
TEST(GatedDeltaGpu, ExtremeDecaysAreFinite) {
  if (!test::has_gpu()) GTEST_SKIP() << "no GPU";
  Case c(FloatType::kF32, {.lengths = {70}, .d = 8, .e = 4, .given_state = true});
  for (int64_t i = 0; i < 70; ++i) {
    if (i % 7 == 3) c.arena.set(c.g, i, -1e4f);
    if (i % 5 == 1) c.arena.set(c.beta, i, 0);
    if (i % 5 == 2) c.arena.set(c.beta, i, 1);
  }
  Case want = c;
  want.run_ref();
  const Case got = with_kernels(c);
  expect_near(got, want, got.out, 1e-2, "out");  // sums near 1e5 have few digits left
  for (const size_t index : {got.dq, got.dk, got.dv, got.dg, got.dbeta}) {
    for (const float x : got.arena.values(index)) EXPECT_TRUE(std::isfinite(x));
  }
}

/// The second of two sequences has the bits of the same sequence alone.
TEST(GatedDeltaGpu, PackedSequencesAreSingleOnes) {
  if (!test::has_gpu()) GTEST_SKIP() << "no GPU";
  const Sizes both{.lengths = {30, 67}, .key_heads = 1, .heads = 2, .d = 8, .e = 4};
  Sizes one = both;
  one.lengths = {67};
  const Case packed(FloatType::kBF16, both);
  Case single(FloatType::kBF16, one);
  for (const size_t index : {single.q, single.k, single.v, single.g, single.beta, single.dout}) {
    const int64_t count = single.arena.arrays()[index].count,
                  skipped = packed.arena.arrays()[index].count - count;
    for (int64_t i = 0; i < count; ++i)
      single.arena.set(index, i, packed.arena.get(index, skipped + i));
  }
  const Case all = with_kernels(packed), alone = with_kernels(single);
  for (const size_t index : {all.out, all.last, all.dq, all.dk, all.dv, all.dg, all.dbeta}) {
    const std::vector<float> want = alone.arena.values(index), got = all.arena.values(index);
    EXPECT_TRUE(std::equal(want.rbegin(), want.rend(), got.rbegin()));
  }
}
#endif

}  // namespace
}  // namespace lft::gated_delta_test
