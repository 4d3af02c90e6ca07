// The gated delta rule against transformers (tests/goldens/models/delta.json), against its
// definition token by token, and against finite differences.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>

#include "models/ops/recurrent/delta_composed.h"
#include "models/ops/recurrent/gated_delta.h"
#include "models/tiny.h"
#include "support/counting_allocator.h"

namespace lft::test::delta_test {
namespace {

at::Tensor normal(at::IntArrayRef shape, uint64_t seed, at::ScalarType type = at::kDouble) {
  return at::randn(shape, at::detail::createCPUGenerator(seed),
                   at::TensorOptions().dtype(at::kDouble))
      .to(type);
}

struct Sizes {
  int64_t h = 2, n = 4, d = 8, e = 5;
};

PackedSequences packed(const std::vector<int64_t>& lengths) {
  PackedSequences sequences;
  sequences.starts = {0};
  for (const int64_t length : lengths) sequences.starts.push_back(sequences.starts.back() + length);
  return sequences;
}

DeltaInput inputs(int64_t t, const Sizes& of, at::ScalarType type = at::kDouble) {
  const at::ScalarType wide = type == at::kDouble ? at::kDouble : at::kFloat;
  return {normal({t, of.h, of.d}, 1, type), normal({t, of.h, of.d}, 2, type),
          normal({t, of.n, of.e}, 3, type), -normal({t, of.n}, 4, wide).abs(),
          at::sigmoid(normal({t, of.n}, 5, type))};
}

std::vector<at::Tensor> tensors(const DeltaInput& in) {
  return {in.q_thd, in.k_thd, in.v_tne, in.g_tn, in.beta_tn};
}
DeltaInput from(const std::vector<at::Tensor>& of) { return {of[0], of[1], of[2], of[3], of[4]}; }
DeltaInput part(const DeltaInput& in, int64_t begin, int64_t count) {
  std::vector<at::Tensor> parts;
  for (const at::Tensor& x : tensors(in)) parts.push_back(x.narrow(0, begin, count));
  return from(parts);
}
DeltaInput leaves(const DeltaInput& in) {
  std::vector<at::Tensor> of;
  for (const at::Tensor& x : tensors(in)) of.push_back(x.detach().clone().set_requires_grad(true));
  return from(of);
}
std::vector<at::Tensor> gradients(const DeltaInput& in) {
  std::vector<at::Tensor> of;
  for (const at::Tensor& x : tensors(in)) of.push_back(x.grad());
  return of;
}

/// Output, final states and gradients.
struct Everything {
  at::Tensor out, state;
  std::vector<at::Tensor> gradients;
};
template <class Rule>
Everything everything(const Rule& rule, const DeltaInput& in, const PackedSequences& sequences,
                      const at::Tensor& state = {}) {
  const DeltaInput own = leaves(in);
  const DeltaResult result = rule(own, sequences, state, true);
  result.out_tne.backward(normal(result.out_tne.sizes(), 9).to(result.out_tne.scalar_type()));
  return {result.out_tne.detach(), result.state_snde, gradients(own)};
}

void expect_near(const Everything& got, const Everything& want, double tolerance) {
  EXPECT_LT(relative_error(got.out, want.out), tolerance);
  EXPECT_LT(relative_error(got.state, want.state), tolerance);
  for (size_t i = 0; i < want.gradients.size(); ++i)
    EXPECT_LT(relative_error(got.gradients[i], want.gradients[i]), tolerance) << "gradient " << i;
}

/// The definition: one token after the other, of one sequence.
DeltaResult by_tokens(const DeltaInput& in, const at::Tensor& state_nde) {
  const int64_t heads = in.v_tne.size(1), repeat = heads / in.q_thd.size(1);
  const auto unit = [&](const at::Tensor& x) {
    return (x / at::sqrt(x.square().sum(-1, true) + 1e-6)).repeat_interleave(repeat, 1);
  };
  const at::Tensor q = unit(in.q_thd) / std::sqrt(static_cast<double>(in.q_thd.size(2))),
                   k = unit(in.k_thd);
  at::Tensor s = state_nde;
  std::vector<at::Tensor> out;
  for (int64_t i = 0; i < q.size(0); ++i) {
    s = s * in.g_tn[i].exp().view({heads, 1, 1});
    const at::Tensor error = in.v_tne[i] - at::einsum("nd,nde->ne", {k[i], s});
    s = s + at::einsum("nd,ne->nde", {k[i], in.beta_tn[i].unsqueeze(1) * error});
    out.push_back(at::einsum("nd,nde->ne", {q[i], s}));
  }
  return {at::stack(out), s.unsqueeze(0)};
}

TEST(GatedDelta, IsTransformers) {
  const Json golden =
      Json::parse(std::ifstream(LFT_SOURCE_DIR "/tests/goldens/models/delta.json"))["rule"];
  const auto expect = [](const at::Tensor& got, const Json& want) {
    const at::Tensor of = at::tensor(want.get<std::vector<double>>(), at::kDouble);
    EXPECT_LT(relative_error(got.detach().flatten(), of), 2e-6);
  };
  const int64_t t = 70, h = 2, n = 4, d = 4, e = 3;
  const DeltaInput in = leaves(
      {fill_by_hash("q", {t, h, d}), fill_by_hash("k", {t, h, d}), fill_by_hash("v", {t, n, e}),
       -2 * fill_by_hash("g", {t, n}).square(), at::sigmoid(4 * fill_by_hash("beta", {t, n}))});
  const DeltaResult result =
      gated_delta_rule(in, packed({t}), fill_by_hash("state", {n, d, e}).unsqueeze(0), true);
  result.out_tne.backward(fill_by_hash("upstream", {t, n, e}));
  expect(result.out_tne, golden["out"]);
  expect(result.out_tne, golden["steps"]);
  expect(result.state_snde, golden["state"]);
  const std::vector<at::Tensor> got = gradients(in);
  const char* names[] = {"q", "k", "v", "g", "beta"};
  for (size_t i = 0; i < got.size(); ++i) expect(got[i], golden["gradients"][names[i]]);
}

TEST(GatedDelta, ChunksAreTheRecurrence) {
  for (const int64_t t : {1, 2, 15, 16, 17, 33, 63, 64, 65, 129, 200}) {
    for (const Sizes& of : {Sizes{}, Sizes{1, 1, 2, 1}, Sizes{3, 3, 17, 33}, Sizes{1, 4, 32, 16}}) {
      const DeltaInput in = inputs(t, of);
      const at::Tensor state = normal({1, of.n, of.d, of.e}, 6);
      const auto recurrence = [](const DeltaInput& one, const PackedSequences&,
                                 const at::Tensor& first,
                                 bool) { return by_tokens(one, first[0]); };
      const Everything want = everything(recurrence, in, packed({t}), state);
      expect_near(everything(gated_delta_rule, in, packed({t}), state), want, 1e-11);
      expect_near(everything(composed_delta_rule, in, packed({t}), state), want, 1e-11);
    }
  }
}

TEST(GatedDelta, GradientsAreFiniteDifferences) {
  const Sizes of{1, 2, 3, 2};
  const PackedSequences sequences = packed({67, 1, 3});
  const DeltaInput in = inputs(71, of);
  const at::Tensor state = normal({3, of.n, of.d, of.e}, 6), up = normal({71, of.n, of.e}, 7);
  const DeltaInput own = leaves(in);
  gated_delta_rule(own, sequences, state).out_tne.backward(up);
  for (size_t i = 0; i < 5; ++i) {
    const at::Tensor along = normal(tensors(in)[i].sizes(), 20 + i);
    const auto value = [&](double step) {
      std::vector<at::Tensor> moved = tensors(in);
      moved[i] = moved[i] + step * along;
      return (gated_delta_rule(from(moved), sequences, state).out_tne * up).sum().item<double>();
    };
    const double h = 1e-5, want = (value(h) - value(-h)) / (2 * h);
    EXPECT_NEAR((gradients(own)[i] * along).sum().item<double>(), want,
                1e-7 * std::abs(want) + 1e-7)
        << "gradient " << i;
  }
}

/// Every sequence has the bits of the same sequence alone, independent of those before it.
TEST(GatedDelta, PackedSequencesAreSingleOnes) {
  const std::vector<int64_t> lengths = {63, 1, 0, 64, 129, 65, 7};
  const PackedSequences sequences = packed(lengths);
  const Sizes of{2, 4, 24, 20};
  for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) {
    const DeltaInput in = inputs(sequences.starts.back(), of, type);
    const at::ScalarType wide = type == at::kDouble ? at::kDouble : at::kFloat;
    const at::Tensor states = normal({7, of.n, of.d, of.e}, 6, wide),
                     up = normal(in.v_tne.sizes(), 9, type);
    const auto run = [&](const DeltaInput& one, const PackedSequences& parts,
                         const at::Tensor& state, const at::Tensor& upstream) {
      const DeltaInput own = leaves(one);
      const DeltaResult result = gated_delta_rule(own, parts, state, true);
      result.out_tne.backward(upstream);
      return Everything{result.out_tne.detach(), result.state_snde, gradients(own)};
    };
    const Everything all = run(in, sequences, states, up);
    EXPECT_EQ(all.out.scalar_type(), type);
    for (int64_t s = 0; s < 7; ++s) {
      const int64_t begin = sequences.starts[static_cast<size_t>(s)],
                    count = lengths[static_cast<size_t>(s)];
      const Everything one = run(part(in, begin, count), packed({count}), states.narrow(0, s, 1),
                                 up.narrow(0, begin, count));
      EXPECT_TRUE(at::equal(one.out, all.out.narrow(0, begin, count))) << s;
      EXPECT_TRUE(at::equal(one.state[0], all.state[s])) << s;
      for (size_t i = 0; i < one.gradients.size(); ++i)
        EXPECT_TRUE(at::equal(one.gradients[i], all.gradients[i].narrow(0, begin, count)))
            << s << ", gradient " << i;
      if (count > 0) continue;
      EXPECT_TRUE(at::equal(all.state[s], states[s]));
    }
  }
}

TEST(GatedDelta, ThreadsChangeNoBit) {
  const PackedSequences sequences = packed({70, 200, 3});
  const DeltaInput in = inputs(273, {3, 6, 16, 16}, at::kFloat);
  const int threads = at::get_num_threads();
  std::vector<Everything> runs;
  for (const int count : {1, 2, 5}) {
    at::set_num_threads(count);
    runs.push_back(everything(gated_delta_rule, in, sequences));
  }
  at::set_num_threads(threads);
  for (const Everything& run : runs) {
    EXPECT_TRUE(at::equal(run.out, runs[0].out));
    EXPECT_TRUE(at::equal(run.state, runs[0].state));
    for (size_t i = 0; i < run.gradients.size(); ++i)
      EXPECT_TRUE(at::equal(run.gradients[i], runs[0].gradients[i])) << i;
  }
}

/// The state after some tokens continues the sequence, also token by token as in decoding.
TEST(GatedDelta, StatesContinueASequence) {
  const int64_t t = 150;
  for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
    const double tolerance = type == at::kFloat ? 2e-6 : 1e-13;
    const DeltaInput in = inputs(t, {}, type);
    const DeltaResult whole = gated_delta_rule(in, packed({t}), {}, true);
    for (const int64_t step : {1, 64, 75, 149}) {
      at::Tensor state;
      std::vector<at::Tensor> out;
      for (int64_t begin = 0; begin < t; begin += step) {
        const int64_t count = std::min(step, t - begin);
        const DeltaResult one =
            gated_delta_rule(part(in, begin, count), packed({count}), state, true);
        out.push_back(one.out_tne);
        state = one.state_snde;
      }
      EXPECT_LT(relative_error(at::cat(out), whole.out_tne), tolerance) << step;
      EXPECT_LT(relative_error(state, whole.state_snde), tolerance) << step;
    }
  }
}

/// Several sequences of one token each: a step of a decoder.
TEST(GatedDelta, AStepOfManySequences) {
  const Sizes of;
  const DeltaInput in = inputs(6, of, at::kFloat);
  const at::Tensor states = normal({6, of.n, of.d, of.e}, 6, at::kFloat);
  const DeltaResult step = gated_delta_rule(in, packed({1, 1, 1, 1, 1, 1}), states, true);
  for (int64_t s = 0; s < 6; ++s) {
    const DeltaResult want = by_tokens(part(in, s, 1), states[s]);
    EXPECT_LT(relative_error(step.out_tne.narrow(0, s, 1), want.out_tne), 2e-6);
    EXPECT_LT(relative_error(step.state_snde.narrow(0, s, 1), want.state_snde), 2e-6);
  }
}

/// A decay that underflows forgets the state; beta 0 writes nothing, and 1 replaces.
TEST(GatedDelta, ExtremeDecaysAndStrengths) {
  const Sizes of;
  const int64_t t = 130;
  for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
    DeltaInput in = inputs(t, of, type);
    in.g_tn = in.g_tn.clone();
    in.g_tn.narrow(0, 10, 30).fill_(-1e4);
    in.g_tn.narrow(0, 60, 10).fill_(-90);
    in.g_tn.narrow(0, 100, 30).fill_(0);
    in.beta_tn = in.beta_tn.clone();
    in.beta_tn.narrow(0, 0, 20).fill_(0);
    in.beta_tn.narrow(0, 30, 50).fill_(1);
    const Everything got = everything(gated_delta_rule, in, packed({t}));
    EXPECT_TRUE(at::isfinite(got.out).all().item<bool>());
    EXPECT_TRUE(at::isfinite(got.state).all().item<bool>());
    for (const at::Tensor& gradient : got.gradients)
      EXPECT_TRUE(at::isfinite(gradient).all().item<bool>());
    EXPECT_EQ(got.out.narrow(0, 0, 20).abs().max().item<double>(), 0);
    const auto recurrence = [&](const DeltaInput& one, const PackedSequences&, const at::Tensor&,
                                bool) {
      return by_tokens(one, at::zeros({of.n, of.d, of.e}, one.v_tne.options()));
    };
    expect_near(got, everything(recurrence, in, packed({t})), type == at::kFloat ? 1e-2 : 1e-9);
  }
}

/// 16-bit inputs are exact, the arithmetic is float32, and results are rounded once.
TEST(GatedDelta, LowPrecisionIsRoundedFloat32) {
  const PackedSequences sequences = packed({70, 20});
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
    const DeltaInput in = inputs(90, {2, 4, 16, 16}, type);
    std::vector<at::Tensor> wide;
    for (const at::Tensor& x : tensors(in)) wide.push_back(x.to(at::kFloat));
    const DeltaInput a = leaves(in), b = leaves(from(wide));
    const at::Tensor up = normal(in.v_tne.sizes(), 9, type);
    const DeltaResult got = gated_delta_rule(a, sequences, {}, true),
                      want = gated_delta_rule(b, sequences, {}, true);
    got.out_tne.backward(up);
    want.out_tne.backward(up.to(at::kFloat));
    const double step = type == at::kBFloat16 ? 0x1p-8 : 0x1p-11;
    EXPECT_LT(relative_error(got.out_tne.detach(), want.out_tne.detach()), step);
    EXPECT_LT(relative_error(got.state_snde, want.state_snde), 1e-6);
    for (size_t i = 0; i < 5; ++i) {
      const at::Tensor dx = gradients(a)[i];
      EXPECT_EQ(dx.scalar_type(), tensors(in)[i].scalar_type());
      EXPECT_LT(relative_error(dx, gradients(b)[i]), dx.scalar_type() == at::kFloat ? 1e-5 : step)
          << i;
    }
  }
}

/// q, k and v may be columns of one matrix.
TEST(GatedDelta, ColumnsOfAMatrixHaveTheSameBits) {
  const Sizes of{2, 4, 8, 6};
  const at::Tensor mixed = normal({80, 2 * of.h * of.d + of.n * of.e}, 1, at::kFloat);
  const auto columns = [&](int64_t first, int64_t heads, int64_t size) {
    return mixed.narrow(1, first, heads * size).view({80, heads, size});
  };
  DeltaInput in = inputs(80, of, at::kFloat);
  in.q_thd = columns(0, of.h, of.d);
  in.k_thd = columns(of.h * of.d, of.h, of.d);
  in.v_tne = columns(2 * of.h * of.d, of.n, of.e);
  DeltaInput dense = in;
  dense.q_thd = in.q_thd.contiguous();
  dense.k_thd = in.k_thd.contiguous();
  dense.v_tne = in.v_tne.contiguous();
  EXPECT_TRUE(at::equal(gated_delta_rule(in, packed({80})).out_tne,
                        gated_delta_rule(dense, packed({80})).out_tne));
}

/// Nothing is kept but the inputs, and the backward pass needs what the header says: here one
/// thread with a sequence of 640 tokens.
TEST(GatedDelta, KeepsItsInputsOnly) {
  const CountingAllocator counting;
  const Sizes of{2, 4, 32, 16};
  const int64_t t = 640;
  const DeltaInput in = leaves(inputs(t, of, at::kFloat));
  const at::Tensor up = normal({t, of.n, of.e}, 9, at::kFloat);
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  const int64_t before = CountingAllocator::live();
  at::Tensor out = gated_delta_rule(in, packed({t})).out_tne;
  EXPECT_EQ(CountingAllocator::live() - before, out.numel() * 4);
  CountingAllocator::reset_peak();
  const int64_t inputs_bytes = 4 * t * (2 * of.h * of.d + of.n * of.e + 2 * of.n);
  out.backward(up);
  at::set_num_threads(threads);
  const int64_t states = 4 * of.n / of.h * of.d * of.e / 64 * t;
  EXPECT_LT(CountingAllocator::peak() - before - out.numel() * 4 - inputs_bytes,
            states + (2 << 20));
}

TEST(GatedDelta, WrongSizesAreNamed) {
  DeltaInput in = inputs(5, {});
  in.beta_tn = in.beta_tn.narrow(1, 0, 3);
  EXPECT_THROW(gated_delta_rule(in, packed({5})), Error);
}

}  // namespace
}  // namespace lft::test::delta_test
