// Low-precision copies of masters, and gradients accumulated in place: when a copy is valid,
// layers compute the same bits with and without copies, and roundings of BF16 compared with
// PEFT under autocast.
#include <ATen/core/grad_mode.h>

#include "models/autocast.h"
#include "models/ops/core/precision.h"
#include "models/ops/linear/linear.h"
#include "models/ops/linear/shared_input.h"
#include "models/ops/weight/masters.h"
#include "models/tiny.h"

namespace lft::test::masters_test {
namespace {

constexpr double kBf16Unit = 0x1p-8;  // maximum relative error of a rounding to BF16

at::Tensor leaf(const at::Tensor& x) { return x.detach().clone().set_requires_grad(true); }

/// Parts of one buffer, each with a separate version, as laid out by the optimizer.
std::vector<at::Tensor> parts_of(const at::Tensor& flat, const std::vector<at::Tensor>& like) {
  std::vector<at::Tensor> parts;
  int64_t first = 0;
  for (const at::Tensor& tensor : like) {
    parts.push_back(flat.narrow(0, first, tensor.numel()).view(tensor.sizes()).variable_data());
    first += tensor.numel();
  }
  return parts;
}

TEST(Shadow, ServesWhileItsMasterIsWhatItWasMadeFrom) {
  const at::Tensor master = leaf(fill_by_hash("master", {5, 8}));
  Shadow shadow(master, 3);
  EXPECT_FALSE(shadow.kept(at::kBFloat16).defined());
  const auto made_now = [&](at::ScalarType dtype) {
    return at::equal(shadow.value(dtype),
                     (master.detach() * (dtype == at::kBFloat16 ? 3 : 1)).to(dtype));
  };
  EXPECT_TRUE(made_now(at::kBFloat16) && made_now(at::kHalf) && made_now(at::kFloat));
  const at::Tensor place = at::zeros({5, 8}, at::kBFloat16);
  shadow.keep(place);
  EXPECT_FALSE(shadow.kept(at::kBFloat16).defined()) << "not written yet";
  shadow.refresh();
  EXPECT_TRUE(shadow.kept(at::kBFloat16).is_same(place) && made_now(at::kBFloat16));
  EXPECT_FALSE(shadow.kept(at::kHalf).defined());

  const at::NoGradGuard no_grad;
  at::Tensor(master).copy_(fill_by_hash("another", {5, 8}));  // a checkpoint is loaded
  EXPECT_FALSE(shadow.kept(at::kBFloat16).defined());
  EXPECT_TRUE(made_now(at::kBFloat16)) << "stale bits were used";
  shadow.refresh();
  EXPECT_TRUE(shadow.kept(at::kBFloat16).is_same(place) && made_now(at::kBFloat16));
  const auto version = place._version();
  shadow.refresh();
  EXPECT_EQ(place._version(), version) << "written again for nothing";
  shadow.keep({});
  EXPECT_FALSE(shadow.kept(at::kBFloat16).defined());
  EXPECT_TRUE(made_now(at::kBFloat16));
}

TEST(StackedView, IsOfNeighboursAlone) {
  const at::Tensor flat = fill_by_hash("flat", {48});
  const std::vector<at::Tensor> parts =
      parts_of(flat, {at::empty({2, 8}), at::empty({1, 8}), at::empty({3, 8})});
  EXPECT_TRUE(at::equal(stacked_view(parts), flat.view({6, 8})));
  EXPECT_TRUE(stacked_view({parts[0], parts[1]}).is_alias_of(flat));
  EXPECT_TRUE(stacked_view({parts[2]}).is_same(parts[2]));
  EXPECT_FALSE(stacked_view({parts[0], parts[2]}).defined());
  EXPECT_FALSE(stacked_view({parts[1], parts[0]}).defined());
  EXPECT_FALSE(stacked_view({parts[0], parts[1].clone()}).defined());
  EXPECT_FALSE(stacked_view({parts[0], at::Tensor()}).defined());
  EXPECT_FALSE(stacked_view({parts[0], flat.narrow(0, 16, 8).view({2, 4})}).defined());
}

/// Two layers of one input and one of its own, with their adapters' masters.
struct Layers {
  std::vector<at::Tensor> w, a, b;
  at::Tensor x = leaf(fill_by_hash("x", {6, 16}) * 2);
  std::vector<ShadowPtr> shadows;
  std::vector<at::Tensor> masters() const { return {a[0], a[1], a[2], b[0], b[1], b[2]}; }
  double scale;

  explicit Layers(double factor) : scale(factor) {
    for (int i = 0; i < 3; ++i) {
      const std::string name = std::to_string(i);
      w.push_back(fill_by_hash("w" + name, {8, 16}));
      a.push_back(leaf(fill_by_hash("a" + name, {2, 16})));
      b.push_back(leaf(fill_by_hash("b" + name, {8, 2})));
    }
    for (const at::Tensor& master : masters()) {
      shadows.push_back(c10::make_intrusive<Shadow>(master, shadows.size() < 3 ? 1 : scale));
    }
  }
  void keep_shadows(at::ScalarType dtype) {
    const std::vector<at::Tensor> places = parts_of(at::zeros({3 * (32 + 16)}, dtype), masters());
    for (size_t i = 0; i < places.size(); ++i) {
      shadows[i]->keep(places[i]);
      shadows[i]->refresh();
    }
  }
  void bind_gradients() {
    gradients = at::zeros({3 * (32 + 16)});
    const std::vector<at::Tensor> places = parts_of(gradients, masters());
    for (size_t i = 0; i < places.size(); ++i) masters()[i].mutable_grad() = places[i];
  }
  LowRank update(size_t i) const { return {a[i], b[i], scale, {}, shadows[i], shadows[3 + i]}; }

  at::Tensor pass() {
    SharedInput shared(Normed(x), {update(0), update(1)});
    at::Tensor sum;
    for (int64_t i = 0; i < 3; ++i) {
      const at::Tensor& weight = w[static_cast<size_t>(i)];
      const at::Tensor y = i < 2 ? shared.linear(i, weight, {}, update(static_cast<size_t>(i)))
                                 : linear(x, weight, {}, update(2));
      const at::Tensor upstream = fill_by_hash("upstream" + std::to_string(i), {6, 8});
      sum = sum.defined() ? sum + (y * upstream).sum() : (y * upstream).sum();
    }
    return sum;
  }
  at::Tensor gradients;
};

/// Two passes, so that gradients accumulate.
std::vector<at::Tensor> gradients_of(Layers& t, at::ScalarType compute, bool direct) {
  const ComputeDtypeGuard guard(compute);
  const DirectGradientsGuard sink(direct);
  if (compute != at::kFloat) t.x = leaf(t.x.to(compute));
  for (int i = 0; i < 2; ++i) t.pass().backward();
  std::vector<at::Tensor> gradients = {t.x.grad()};
  for (const at::Tensor& master : t.masters()) gradients.push_back(master.grad());
  return gradients;
}

TEST(Masters, LayersComputeTheSameBitsWithTheirShadows) {
  for (const at::ScalarType compute : {at::kBFloat16, at::kHalf}) {
    for (const double scale : {2.0, 1.7}) {
      Layers with(scale), without(scale);
      with.keep_shadows(compute);
      {
        const ComputeDtypeGuard guard(compute);
        const at::NoGradGuard no_grad;
        const at::Tensor x = with.x.to(compute);
        with.x = without.x = x;
        EXPECT_TRUE(at::equal(with.pass(), without.pass()));
      }
      const auto a = gradients_of(with, compute, false), b = gradients_of(without, compute, false);
      for (size_t i = 0; i < a.size(); ++i)
        EXPECT_TRUE(at::equal(a[i], b[i])) << compute << " " << scale << " " << i;
    }
  }
}

/// In float32 bit for bit. Below, the product's rounding is autocast's; only scale * product + sum
/// is rounded once instead of twice, by half an ulp of float32 each.
TEST(Masters, GradientsAddedDirectlyAreThoseOfAutograd) {
  for (const at::ScalarType compute : {at::kFloat, at::kBFloat16, at::kHalf}) {
    for (const double scale : {2.0, 1.7}) {
      Layers direct(scale), handed(scale);
      direct.bind_gradients();
      const auto a = gradients_of(direct, compute, true), b = gradients_of(handed, compute, false);
      for (size_t i = 0; i < a.size(); ++i) {
        const bool exact = compute != at::kBFloat16 || scale == 2.0;
        EXPECT_TRUE(exact ? at::equal(a[i], b[i]) : relative_error(a[i], b[i]) < 4 * 0x1p-24)
            << compute << scale << i;
      }
      int64_t first = 0;
      for (size_t i = 1; i < a.size(); ++i) {
        EXPECT_TRUE(a[i].is_alias_of(direct.gradients) && a[i].storage_offset() == first) << i;
        EXPECT_GT(a[i]._version(), 0) << "nothing tells that it was written: " << i;
        first += a[i].numel();
      }
    }
  }
}

TEST(Masters, WithoutAPlaceOrAGuardAutogradGetsThem) {
  Layers t(2);
  {
    const DirectGradientsGuard direct;
    t.pass().backward();
  }
  for (const at::Tensor& master : t.masters()) EXPECT_TRUE(master.grad().defined());
  Layers bound(2);
  bound.bind_gradients();
  bound.pass().backward();
  for (size_t i = 0; i < 6; ++i)
    EXPECT_TRUE(at::equal(bound.masters()[i].grad(), t.masters()[i].grad())) << i;
}

// BF16 with a scale that is no power of two: a scaled B rounds elsewhere than a scaled product.
// Values rounded for the output under autocast: x, A, B, h, h B^T, its scaling, W, the sum
// (8); here x, A, scale B, h, W and the sum (6).
// To x's gradient: dy, scale dy, B, dh, A, dh A, W, sum (8); here dy, scale B, dh, A, W, sum (6).
// To A's: dy, scale dy, B, dh, x, dA (6); here dy, scale B, dh, x, dA (5).
// To B's: dy, scale dy, x, A, h, dB (6); here dy, x, A, h, dB (5).
// A rounding errs by at most u = 2^-8, uniformly, so by u / sqrt(3) in the root mean square; k
// independent ones by sqrt(k / 3) u. Cancellation in a sum at most doubles that for these
// shapes. So ours are within 2 sqrt(6 / 3) u of the exact values, and the two within
// 2 sqrt(14 / 3) u of each other.
TEST(Masters, Bf16RoundsNoMoreThanPeftUnderAutocast) {
  for (const double scale : {1.7, 3.0}) {
    Layers t(scale), u(scale);
    const at::Tensor dy = fill_by_hash("dy", {6, 8});
    const auto grads = [&](const Layers& leaves, const at::Tensor& y) {
      y.backward(dy.to(y.scalar_type()));
      return std::vector<at::Tensor>{leaves.x.grad(), leaves.a[2].grad(), leaves.b[2].grad()};
    };
    at::Tensor got, want;
    {
      const ComputeDtypeGuard guard(at::kBFloat16);
      got = linear(t.x, t.w[2], {}, t.update(2));
    }
    {
      const Autocast autocast(at::kBFloat16);
      want = at::linear(u.x, u.w[2]) + at::linear(at::linear(u.x, u.a[2]), u.b[2]) * scale;
    }
    const auto exact_of = [&](const Layers& leaves) {
      const at::Tensor a = leaves.a[2].detach().to(at::kDouble).requires_grad_();
      const at::Tensor b = leaves.b[2].detach().to(at::kDouble).requires_grad_();
      const at::Tensor x = leaves.x.detach().to(at::kDouble).requires_grad_();
      const at::Tensor y = x.mm(leaves.w[2].to(at::kDouble).t()) + scale * x.mm(a.t()).mm(b.t());
      y.backward(dy.to(at::kDouble));
      return std::vector<at::Tensor>{y.detach(), x.grad(), a.grad(), b.grad()};
    };
    const std::vector<at::Tensor> exact = exact_of(t);
    const double beside = 2 * std::sqrt(14.0 / 3) * kBf16Unit,
                 off = 2 * std::sqrt(6.0 / 3) * kBf16Unit;
    EXPECT_LT(relative_error(got, want), beside);
    EXPECT_LT(relative_error(got, exact[0]), off);
    const auto a = grads(t, got), b = grads(u, want);
    for (size_t i = 0; i < a.size(); ++i) {
      EXPECT_LT(relative_error(a[i], b[i]), beside) << i;
      EXPECT_LT(relative_error(a[i], exact[i + 1]), off) << i;
    }
  }
}

}  // namespace
}  // namespace lft::test::masters_test
