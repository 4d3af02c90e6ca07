// The fused ops against the same maths in plain ATen ops under autograd, and against known answers.
#include "kernels/common/philox.h"
#include "models/ops/core/precision.h"
#include "models/ops/elementwise/activation.h"
#include "models/ops/elementwise/dropout.h"
#include "models/ops/elementwise/rms_norm.h"
#include "models/ops/elementwise/rope.h"
#include "models/ops/elementwise/token_logprobs.h"
#include "models/tiny.h"

namespace lft::test::ops_test {
namespace {

/// Uniform in [-2, 2).
at::Tensor random(at::IntArrayRef shape, const char* name) {
  return fill_by_hash(name, {c10::multiply_integers(shape)}).reshape(shape) * 4;
}
at::Tensor leaf(const at::Tensor& x) { return x.detach().clone().set_requires_grad(true); }

/// Values and gradients of `fused` and `plain` over the same leaves agree: within 1e-5 in float32;
/// in BFloat16, whose steps are 2^-8, within 1 %; in FP16, whose steps are 2^-11, within 0.125 %.
template <class Fused, class Plain>
void expect_same(const std::vector<at::Tensor>& values, const Fused& fused, const Plain& plain) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    const ComputeDtypeGuard guard(type);
    std::vector<at::Tensor> a, b;
    for (const at::Tensor& value : values) {
      a.push_back(leaf(value.to(type)));
      b.push_back(leaf(value.to(type).to(at::kFloat)));
    }
    const at::Tensor got = fused(a), want = plain(b);
    const at::Tensor upstream = random(want.sizes(), "upstream");
    got.backward(upstream.to(got.scalar_type()));
    want.backward(upstream);
    const double tolerance = type == at::kFloat ? 1e-5 : type == at::kBFloat16 ? 1e-2 : 1.25e-3;
    EXPECT_EQ(got.scalar_type(), type);
    EXPECT_LT(relative_error(got.detach(), want.detach()), tolerance);
    for (size_t i = 0; i < values.size(); ++i) {
      EXPECT_EQ(a[i].grad().scalar_type(), type);
      EXPECT_LT(relative_error(a[i].grad(), b[i].grad()), tolerance) << "gradient " << i;
    }
  }
}

TEST(Philox, KnownAnswersOfRandom123) {
  const auto expect = [](PhiloxBlock counter, uint32_t key0, uint32_t key1, PhiloxBlock want) {
    const PhiloxBlock got = philox4x32_10(counter, key0, key1);
    for (int i = 0; i < 4; ++i) EXPECT_EQ(got.word[i], want.word[i]);
  };
  const uint32_t f = 0xFFFFFFFFu;
  expect({{0, 0, 0, 0}}, 0, 0, {{0x6627E8D5u, 0xE169C58Du, 0xBC57AC4Cu, 0x9B00DBD8u}});
  expect({{f, f, f, f}}, f, f, {{0x408F276Du, 0x41C83B0Eu, 0xA20BC7C6u, 0x6D5451FDu}});
  expect({{0x243F6A88u, 0x85A308D3u, 0x13198A2Eu, 0x03707344u}}, 0xA4093822u, 0x299F31D0u,
         {{0xD16CFE09u, 0x94FDCCEBu, 0x5001E420u, 0x24126EA1u}});
}

TEST(RmsNorm, ValuesAndGradients) {
  for (const int64_t cols : {3, 7, 33, 512}) {
    expect_same(
        {random({5, cols}, "x"), random({cols}, "w") + 1},
        [](auto& t) { return rms_norm(t[0], t[1], 1e-5); },
        [](auto& t) { return t[0] * at::rsqrt(t[0].square().mean(-1, true) + 1e-5) * t[1]; });
  }
}

TEST(RmsNorm, FrozenWeightGetsNoGradientAndWideInputGivesComputeDtype) {
  const ComputeDtypeGuard guard(at::kBFloat16);
  const at::Tensor x = leaf(random({3, 16}, "x")), w = at::ones({16});
  const at::Tensor y = rms_norm(x, w, 1e-6);
  EXPECT_EQ(y.scalar_type(), at::kBFloat16);
  y.sum().backward();
  EXPECT_EQ(x.grad().scalar_type(), at::kFloat);
  EXPECT_FALSE(w.grad().defined());
}

TEST(Rope, ValuesAndGradients) {
  for (const int64_t batches : {1, 2}) {
    const at::Tensor angle = random({batches, 5, 4}, "angle"), cos = angle.cos(), sin = angle.sin();
    const auto plain = [&](const std::vector<at::Tensor>& t) {
      const at::Tensor c = at::cat({cos, cos}, -1).unsqueeze(2),
                       s = at::cat({sin, sin}, -1).unsqueeze(2);
      const at::Tensor half = at::cat({-t[0].narrow(-1, 4, 4), t[0].narrow(-1, 0, 4)}, -1);
      return t[0] * c + half * s;
    };
    expect_same(
        {random({2, 5, 3, 8}, "x")}, [&](auto& t) { return rope(t[0], cos, sin); }, plain);
  }
}

TEST(Swiglu, ValuesAndGradients) {
  expect_same(
      {random({7, 129}, "gate"), random({7, 129}, "up")}, [](auto& t) { return gated(t[0], t[1]); },
      [](auto& t) { return t[0] * at::sigmoid(t[0]) * t[1]; });
}

TEST(Geglu, ValuesAndGradients) {
  for (const double size : {1.0, 6.0}) {
    expect_same(
        {random({7, 129}, "gate") * size, random({7, 129}, "up")},
        [](auto& t) { return gated(t[0], t[1], Gate::kGelu); },
        [](auto& t) { return at::gelu(t[0], "tanh") * t[1]; });
  }
}

TEST(Geglu, FarInputsNeitherOverflowNorLoseNaN) {
  const at::Tensor gate = at::tensor({-1e30, -100.0, 100.0, 1e30, std::nan("")}, at::kFloat);
  const at::Tensor y = gated_values(gate, at::ones({5}), Gate::kGelu);
  const auto [dgate, dup, none] = gated_gradients(at::ones({5}), gate, at::ones({5}), Gate::kGelu);
  EXPECT_TRUE(at::allclose(y.narrow(0, 0, 4), at::tensor({0.0f, 0.0f, 100.0f, 1e30f}), 0,
                           1e-8));  // 1e30 exp(-88)
  EXPECT_TRUE(at::allclose(dgate.narrow(0, 0, 4), at::tensor({0.0f, 0.0f, 1.0f, 1.0f}), 0, 1e-30));
  EXPECT_TRUE(at::equal(dup.narrow(0, 0, 4), y.narrow(0, 0, 4)));
  EXPECT_TRUE(std::isnan(y[4].item<float>()) && std::isnan(dgate[4].item<float>()));
}

TEST(Swiglu, FarInputsNeitherOverflowNorLoseNaN) {
  const at::Tensor gate = at::tensor({-1e4, -100.0, 100.0, 1e4, std::nan("")}, at::kFloat);
  const at::Tensor y = gated_values(gate, at::ones({5}));
  EXPECT_NEAR(y[0].item<float>(), 0, 1e-30);
  EXPECT_NEAR(y[1].item<float>(), 0, 1e-30);
  EXPECT_EQ(y[2].item<float>(), 100);
  EXPECT_EQ(y[3].item<float>(), 1e4f);
  EXPECT_TRUE(std::isnan(y[4].item<float>()));
}

TEST(QuickGelu, ValuesAndGradients) {
  expect_same(
      {random({7, 129}, "x")}, [](auto& t) { return quick_gelu(t[0]); },
      [](auto& t) { return t[0] * at::sigmoid(1.702 * t[0]); });
}

TEST(TokenLogprobs, ValuesAndGradientsWithFrozenAndTrainedWeight) {
  const at::Tensor targets = at::tensor({3, 0, 96, 3, 50}, at::kLong), upstream = random({5}, "up");
  for (const bool trained : {false, true}) {
    const at::Tensor h = leaf(random({5, 16}, "h")),
                     w = leaf(random({97, 16}, "w")).set_requires_grad(trained);
    const at::Tensor h2 = leaf(h), w2 = leaf(w);
    const at::Tensor got = token_logprobs(h, w, targets);
    const at::Tensor want =
        at::log_softmax(at::mm(h2, w2.t()), -1).gather(1, targets.unsqueeze(1)).squeeze(1);
    EXPECT_LT(max_abs_diff(got, want), 1e-5);
    got.backward(upstream);
    want.backward(upstream);
    EXPECT_LT(relative_error(h.grad(), h2.grad()), 1e-5);
    EXPECT_EQ(w.grad().defined(), trained);
    if (trained) {
      EXPECT_LT(relative_error(w.grad(), w2.grad()), 1e-5);
    }
  }
}

TEST(TokenLogprobs, ManyChunksEqualOne) {  // 700 x 16,384 logits are more than the 2^23 of a chunk
  const at::Tensor w = random({16384, 4}, "w"), targets = at::arange(700, at::kLong);
  const at::Tensor h = leaf(random({700, 4}, "h"));
  const at::Tensor all = token_logprobs(h, w, targets);
  all.sum().backward();
  const at::Tensor part = leaf(h.narrow(0, 600, 100));
  const at::Tensor few = token_logprobs(part, w, targets.narrow(0, 600, 100));
  few.sum().backward();
  EXPECT_LT(max_abs_diff(all.narrow(0, 600, 100), few), 1e-5);
  EXPECT_LT(relative_error(h.grad().narrow(0, 600, 100), part.grad()), 1e-5);
}

TEST(TokenLogprobs, StoredBf16IsWidenedInSlices) {  // 5,000 rows are more than one slice of 4,096
  const at::Tensor w = random({5000, 8}, "w").to(at::kBFloat16),
                   targets = at::tensor({4999, 1}, at::kLong);
  const at::Tensor h = leaf(random({2, 8}, "h")), h2 = leaf(h);
  const at::Tensor got = token_logprobs(h, w, targets),
                   want = token_logprobs(h2, w.to(at::kFloat), targets);
  EXPECT_LT(max_abs_diff(got, want), 1e-5);
  got.sum().backward();
  want.sum().backward();
  EXPECT_LT(relative_error(h.grad(), h2.grad()), 1e-5);
}

TEST(TokenLogprobs, Bf16AndFp16AreNearFp32) {
  const at::Tensor w = random({300, 32}, "w") * 0.2, targets = at::tensor({7, 299, 0}, at::kLong),
                   h = random({3, 32}, "h");
  const at::Tensor exact = leaf(h);
  const at::Tensor want = token_logprobs(exact, w, targets);
  want.sum().backward();
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
    const ComputeDtypeGuard guard(type);
    const at::Tensor x = leaf(h);
    const at::Tensor got = token_logprobs(x, w.to(type), targets);
    EXPECT_EQ(got.scalar_type(), at::kFloat);
    EXPECT_LT(max_abs_diff(got, want), 5e-2);  // logits near 4 have steps of 2^-6 in BFloat16
    got.sum().backward();
    EXPECT_LT(relative_error(x.grad(), exact.grad()), 2e-2);
  }
}

TEST(TokenLogprobs, NonFiniteLogitsAreSeen) {
  const float inf = std::numeric_limits<float>::infinity();
  for (const float bad : {inf, -inf, std::nanf("")}) {
    at::Tensor w = at::zeros({4, 1});
    w[2][0] = bad;
    EXPECT_FALSE(std::isfinite(
        token_logprobs(at::ones({1, 1}), w, at::tensor({0}, at::kLong)).item<float>()))
        << bad;
  }
}

TEST(Dropout, MaskIsAPureFunctionOfItsKeys) {
  const at::Tensor x = at::ones({64, 33});
  const auto draw = [&](DropoutPosition position, const char* path) {
    const DropoutGuard guard(position);
    return dropout(x, dropout_mask(0.3, path));
  };
  const at::Tensor first = draw({1, 2, 3}, "layers.0.q_proj");
  EXPECT_TRUE(at::equal(first, draw({1, 2, 3}, "layers.0.q_proj")));
  for (const at::Tensor& other :
       {draw({2, 2, 3}, "layers.0.q_proj"), draw({1, 3, 3}, "layers.0.q_proj"),
        draw({1, 2, 4}, "layers.0.q_proj"), draw({1, 2, 3}, "layers.1.q_proj")}) {
    const double agreement = (first == other).to(at::kDouble).mean().item<double>();
    EXPECT_NEAR(agreement, 0.58, 0.05);  // independent masks agree at 0.3^2 + 0.7^2; sigma is 0.011
  }
  EXPECT_TRUE(dropout(x, dropout_mask(0.3, "outside any guard")).is_same(x));
}

TEST(Dropout, RateAndScale) {
  const DropoutGuard guard({7, 1, 0});
  for (const double p : {0.05, 0.5}) {
    const DropoutMask mask = dropout_mask(p, "layer");
    const at::Tensor y = dropout(at::ones({1000, 1003}), mask);
    const double n = 1003000, kept = (y != 0).to(at::kDouble).mean().item<double>();
    EXPECT_NEAR(kept, 1 - p, 5 * std::sqrt(p * (1 - p) / n) + 1.0 / 65536);
    EXPECT_EQ(y.max().item<float>(), mask.scale);
    EXPECT_TRUE((y.eq(0) | y.eq(mask.scale)).all().item<bool>()) << "one scale";
    EXPECT_NEAR(mask.scale * (1 - p), 1, 1e-4);
  }
}

TEST(Dropout, EveryTypeAndPieceHasTheSameMask) {
  const DropoutGuard guard({7, 1, 0});
  const DropoutMask mask = dropout_mask(0.5, "layer");
  const at::Tensor x = at::ones({3001, 17});
  const at::Tensor kept = dropout(x, mask) != 0;
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf})
    EXPECT_TRUE(at::equal(dropout(x.to(type), mask) != 0, kept));
  at::Tensor sum = at::ones({3001, 17});
  add_dropout(sum, x, mask);
  EXPECT_TRUE(at::equal(sum != 1, kept));
  // Element i uses 16 bits of block i / 8, low half of a word first: the definition for every
  // device.
  for (const int64_t i : {0, 1, 9, 51016}) {
    const uint32_t word =
        philox_block(mask.seed, mask.stream, static_cast<uint64_t>(i) / 8).word[i % 8 / 2];
    EXPECT_EQ(kept.flatten()[i].item<bool>(),
              (i % 2 == 0 ? word & 0xFFFFu : word >> 16) >= mask.threshold);
  }
}

}  // namespace
}  // namespace lft::test::ops_test
