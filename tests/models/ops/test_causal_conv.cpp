// The causal convolution and the gated norm of Gated DeltaNet against transformers
// (tests/goldens/models/delta.json) and against ATen.
#include <ATen/Parallel.h>

#include "models/ops/recurrent/causal_conv.h"
#include "models/ops/recurrent/gated_norm.h"
#include "models/tiny.h"
#include "support/counting_allocator.h"

namespace lft::test::causal_conv_test {
namespace {

Json golden(const char* op) {
  return Json::parse(std::ifstream(LFT_SOURCE_DIR "/tests/goldens/models/delta.json"))[op];
}
double error(const at::Tensor& got, const Json& want) {
  return relative_error(got.detach().flatten(),
                        at::tensor(want.get<std::vector<double>>(), at::kDouble));
}
at::Tensor leaf(const at::Tensor& x) { return x.detach().clone().set_requires_grad(true); }

PackedSequences packed(const std::vector<int64_t>& lengths) {
  PackedSequences sequences;
  sequences.starts = {0};
  for (const int64_t length : lengths) sequences.starts.push_back(sequences.starts.back() + length);
  return sequences;
}

TEST(CausalConv, IsTransformers) {
  const Json want = golden("conv");
  const at::Tensor x = leaf(fill_by_hash("x", {70, 5})), w = leaf(fill_by_hash("weight", {5, 4}));
  const at::Tensor out = causal_conv_silu(x, w, packed({70})).out_tc;
  out.backward(fill_by_hash("upstream", {70, 5}));
  EXPECT_LT(error(out, want["out"]), 1e-6);
  EXPECT_LT(error(x.grad(), want["gradients"]["x"]), 1e-6);
  EXPECT_LT(error(w.grad(), want["gradients"]["weight"]), 1e-6);
  const at::Tensor narrow =
      causal_conv_silu(x.detach().to(at::kBFloat16), w.detach().to(at::kBFloat16), packed({70}))
          .out_tc;
  EXPECT_LT(error(narrow.to(at::kDouble), want["bfloat16"]), 1e-3);  // silu's own roundings
}

/// The loops against the ATen composition, which float64 uses.
TEST(CausalConv, LoopsAreTheComposition) {
  const PackedSequences sequences = packed({1, 2, 0, 3, 4, 300, 7});
  for (const int64_t taps : {1, 2, 4, 8}) {
    for (const int64_t channels : {3, 256, 600}) {
      const at::Tensor x = fill_by_hash("x", {317, channels}) * 4,
                       w = fill_by_hash("w", {channels, taps}),
                       first = fill_by_hash("first", {7, channels, taps - 1}),
                       up = fill_by_hash("up", {317, channels});
      const auto run = [&](at::ScalarType type) {
        const at::Tensor own = leaf(x.to(type)), weight = leaf(w.to(type));
        const ConvResult result = causal_conv_silu(own, weight, sequences, first.to(type), true);
        result.out_tc.backward(up.to(type));
        return std::vector<at::Tensor>{result.out_tc.detach(), result.last_scw1, own.grad(),
                                       weight.grad()};
      };
      const std::vector<at::Tensor> got = run(at::kFloat), want = run(at::kDouble);
      for (size_t i = 0; i < got.size(); ++i) {
        if (want[i].numel() == 0) continue;
        EXPECT_LT(relative_error(got[i], want[i]), 1e-6) << i;
      }
    }
  }
}

TEST(CausalConv, PackedSequencesAreSingleOnesAndThreadsChangeNoBit) {
  const std::vector<int64_t> lengths = {1, 0, 2, 3, 60, 5};
  const PackedSequences sequences = packed(lengths);
  const at::Tensor x = fill_by_hash("x", {71, 300}), w = fill_by_hash("w", {300, 4}),
                   first = fill_by_hash("first", {6, 300, 3}), up = fill_by_hash("up", {71, 300});
  const auto run = [&](const at::Tensor& of, const PackedSequences& parts, const at::Tensor& before,
                       const at::Tensor& upstream) {
    const at::Tensor own = leaf(of), weight = leaf(w);
    const ConvResult result = causal_conv_silu(own, weight, parts, before, true);
    result.out_tc.backward(upstream);
    return std::vector<at::Tensor>{result.out_tc.detach(), result.last_scw1, own.grad(),
                                   weight.grad()};
  };
  const std::vector<at::Tensor> all = run(x, sequences, first, up);
  for (int64_t s = 0; s < 6; ++s) {
    const int64_t begin = sequences.starts[static_cast<size_t>(s)],
                  count = lengths[static_cast<size_t>(s)];
    const std::vector<at::Tensor> one = run(x.narrow(0, begin, count), packed({count}),
                                            first.narrow(0, s, 1), up.narrow(0, begin, count));
    EXPECT_TRUE(at::equal(one[0], all[0].narrow(0, begin, count)));
    EXPECT_TRUE(at::equal(one[1][0], all[1][s]));
    EXPECT_TRUE(at::equal(one[2], all[2].narrow(0, begin, count)));
  }
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  const std::vector<at::Tensor> alone = run(x, sequences, first, up);
  at::set_num_threads(threads);
  for (size_t i = 0; i < all.size(); ++i) EXPECT_TRUE(at::equal(alone[i], all[i]));
}

TEST(CausalConv, TheLastInputsContinueASequence) {
  const at::Tensor x = fill_by_hash("x", {20, 6}), w = fill_by_hash("w", {6, 4});
  const at::Tensor whole = causal_conv_silu(x, w, packed({20})).out_tc;
  for (const int64_t step : {1, 2, 7}) {
    at::Tensor before;
    std::vector<at::Tensor> out;
    for (int64_t begin = 0; begin < 20; begin += step) {
      const int64_t count = std::min<int64_t>(step, 20 - begin);
      const ConvResult one =
          causal_conv_silu(x.narrow(0, begin, count), w, packed({count}), before, true);
      out.push_back(one.out_tc);
      before = one.last_scw1;
    }
    EXPECT_TRUE(at::equal(at::cat(out), whole)) << step;
  }
}

TEST(CausalConv, AFrozenWeightGetsNoGradient) {
  const at::Tensor x = leaf(fill_by_hash("x", {9, 4})), w = fill_by_hash("w", {4, 4});
  causal_conv_silu(x, w, packed({9})).out_tc.sum().backward();
  EXPECT_TRUE(x.grad().defined());
  EXPECT_FALSE(w.grad().defined());
}

/// Beyond the results only the inputs before the sequences, zeros here, are kept.
TEST(CausalConv, KeepsItsInputsOnly) {
  const CountingAllocator counting;
  const at::Tensor x = leaf(fill_by_hash("x", {500, 64})), w = fill_by_hash("w", {64, 4}),
                   gate = leaf(fill_by_hash("gate", {500, 64})), scale = fill_by_hash("s", {64});
  int64_t before = CountingAllocator::live();
  const at::Tensor out = causal_conv_silu(x, w, packed({500})).out_tc;
  EXPECT_EQ(CountingAllocator::live() - before, 4 * (500 + 3) * 64);
  before = CountingAllocator::live();
  const at::Tensor y = gated_rms_norm(x, gate, scale, 1e-6);
  EXPECT_EQ(CountingAllocator::live() - before, 4 * 500 * 64);
}

TEST(GatedNorm, IsTransformers) {
  const Json want = golden("norm");
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    const auto filled = [&](const char* name) {
      return (4 * fill_by_hash(name, {70, 16})).to(type);
    };
    const at::Tensor got = gated_rms_norm(filled("x"), filled("gate"),
                                          (1 + fill_by_hash("weight", {16})).to(type), 1e-6);
    EXPECT_EQ(got.scalar_type(), type);
    const bool narrow = type == at::kBFloat16;
    // A reciprocal root that differs in its last bit may round to another BF16 number.
    EXPECT_LT(error(got.to(at::kDouble), want[narrow ? "bfloat16" : "float32"]),
              narrow ? 1e-3 : 1e-6);
  }
}

/// The loops against the ATen composition, which float64 uses.
TEST(GatedNorm, LoopsAreTheComposition) {
  for (const int64_t cols : {1, 7, 128}) {
    const at::Tensor x = fill_by_hash("x", {33, cols}) * 4,
                     gate = fill_by_hash("g", {33, cols}) * 4, w = fill_by_hash("w", {cols}) + 1,
                     up = fill_by_hash("up", {33, cols});
    const auto run = [&](at::ScalarType type, at::ScalarType weights) {
      const at::Tensor a = leaf(x.to(type)), b = leaf(gate.to(type)), c = leaf(w.to(weights));
      const at::Tensor y = gated_rms_norm(a, b, c, 1e-2);
      y.backward(up.to(type));
      return std::vector<at::Tensor>{y.detach(), a.grad(), b.grad(), c.grad()};
    };
    const std::vector<at::Tensor> want = run(at::kDouble, at::kDouble);
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf}) {
      for (const at::ScalarType weights : {type, at::kFloat}) {
        const std::vector<at::Tensor> got = run(type, weights);
        const double tolerance = type == at::kFloat ? 1e-6 : type == at::kBFloat16 ? 2e-2 : 2.5e-3;
        for (size_t i = 0; i < got.size(); ++i)
          EXPECT_LT(relative_error(got[i].to(at::kDouble), want[i]), tolerance) << i;
      }
    }
  }
}

}  // namespace
}  // namespace lft::test::causal_conv_test
