// FP16 training on the CPU: products, roundings and overflows at the same places as torch's
// autocast, forward and backward.
#include <ATen/core/grad_mode.h>

#include <map>

#include "models/autocast.h"
#include "models/lora/inject.h"
#include "models/lora/inject_select.h"
#include "models/loss_sum.h"
#include "models/ops/core/cpu_loops.h"
#include "models/ops/core/gemm.h"
#include "models/ops/core/precision.h"
#include "models/ops/elementwise/dropout.h"
#include "models/ops/elementwise/token_logprobs.h"
#include "models/ops/linear/linear.h"
#include "models/tiny.h"

namespace lft::test::fp16_test {
namespace {

constexpr double kHalfUnit = 0x1p-11;  // relative error of one rounding to FP16

at::Tensor leaf(const at::Tensor& x) { return x.detach().clone().set_requires_grad(true); }

// Every FP16 number, times factors that produce ties, subnormals and overflows, by the loops'
// conversions and by ATen's.
TEST(Fp16Loops, ConvertAsAtenDoes) {
  at::Tensor bits = at::arange(65536, at::kInt).to(at::kShort);
  const at::Tensor x = bits.view(at::kHalf);
  for (const float factor :
       {1.0f, 0.5f, 0.75f, 1.0009765625f, 0x1p-12f, 0x1p-20f, 3.0f, 1024.0f, 0.333f}) {
    at::Tensor y = at::empty_like(x);
    const DropoutMask keep_all{.seed = 0, .stream = 0, .threshold = 0, .scale = factor};
    loops::dropout(x.const_data_ptr<at::Half>(), y.mutable_data_ptr<at::Half>(), 0, x.numel(),
                   keep_all, /*add=*/false);
    const at::Tensor want = (x.to(at::kFloat) * factor).to(at::kHalf);
    EXPECT_TRUE(at::equal(at::isnan(y), at::isnan(want))) << factor;
    const at::Tensor a = at::nan_to_num(y, 0.0).view(at::kShort),
                     b = at::nan_to_num(want, 0.0).view(at::kShort);
    const at::Tensor finite = at::isfinite(want);
    EXPECT_TRUE(at::equal(a.masked_select(finite), b.masked_select(finite))) << factor;
    EXPECT_TRUE(at::equal(at::isinf(y) * at::sign(y), at::isinf(want) * at::sign(want)) ||
                at::isnan(want).any().item<bool>())
        << factor;
    EXPECT_TRUE(at::equal(at::isposinf(y), at::isposinf(want)) &&
                at::equal(at::isneginf(y), at::isneginf(want)))
        << factor;
  }
}

TEST(Fp16Products, AreTheRoundedExactOnes) {
  const at::Tensor a = fill_by_hash("a", {37, 300}).to(at::kHalf),
                   b = fill_by_hash("b", {300, 21}).to(at::kHalf);
  const at::Tensor bias = fill_by_hash("bias", {21}).to(at::kHalf),
                   start = fill_by_hash("start", {37, 21}).to(at::kHalf);
  const at::Tensor exact = at::mm(a.to(at::kDouble), b.to(at::kDouble));
  const auto near = [](const at::Tensor& got, const at::Tensor& want) {
    EXPECT_EQ(got.scalar_type(), at::kHalf);
    return ((got.to(at::kDouble) - want).abs() <= want.abs() * kHalfUnit * 1.001 + 1e-6)
        .all()
        .item<bool>();
  };
  EXPECT_TRUE(near(product(a, b), exact));
  EXPECT_TRUE(near(product(b.t(), a.t()), exact.t()));
  EXPECT_TRUE(near(affine(bias, a, b), exact + bias.to(at::kDouble)));
  at::Tensor y = start.clone();
  add_product(y, a, b, 3.0);
  EXPECT_TRUE(near(y, start.to(at::kDouble) + 3 * exact));
  at::Tensor sum = at::ones({37, 21});
  accumulate(sum, a, b);
  EXPECT_LT(max_abs_diff(sum, exact + 1), 1e-5);
}

struct Leaves {
  explicit Leaves(double size) {
    a.mul_(size);
    a = leaf(a);
  }
  at::Tensor x = leaf(fill_by_hash("x", {6, 12}) * 4), w = leaf(fill_by_hash("w", {9, 12})),
             bias = leaf(fill_by_hash("bias", {9}));
  at::Tensor a = fill_by_hash("a", {3, 12}), b = leaf(fill_by_hash("b", {9, 3}));
  std::vector<at::Tensor> all() const { return {x, w, bias, a, b}; }
};

/// PEFT's LoRA layer under autocast with float32 weights: autocast casts them, and autograd casts
/// their gradients back.
at::Tensor peft_forward(const Leaves& t, double scale) {
  return at::linear(t.x, t.w, t.bias) + at::linear(at::linear(t.x, t.a), t.b) * scale;
}

// Upstream gradients of all magnitudes: if torch's gradient of a leaf is infinite or NaN, ours is
// not finite either, and vice versa.
TEST(Fp16Linear, GradientsAreThoseOfPeftUnderAutocastAndOverflowWithThem) {
  int overflowing = 0, finite = 0;
  for (const double scale : {0.5, 2.0, 3.0, 16.0}) {
    for (const double size : {1.0, 0.01}) {
      for (const double upstream : {1.0, 300.0, 3000.0, 9000.0, 20000.0, 60000.0}) {
        Leaves t(size), u(size);
        const at::Tensor dy = (fill_by_hash("dy", {6, 9}) * upstream).to(at::kHalf);
        {
          const ComputeDtypeGuard guard(at::kHalf);
          linear(t.x, t.w, t.bias, {t.a, t.b, scale, {}}).backward(dy);
        }
        {
          const Autocast autocast(at::kHalf);
          peft_forward(u, scale).backward(dy);
        }
        for (size_t i = 0; i < t.all().size(); ++i) {
          const at::Tensor got = t.all()[i].grad(), want = u.all()[i].grad();
          ASSERT_EQ(got.scalar_type(), at::kFloat);
          ASSERT_EQ(want.scalar_type(), at::kFloat);
          const at::Tensor ours = at::isfinite(got), theirs = at::isfinite(want);
          EXPECT_TRUE(at::equal(ours, theirs))
              << "gradient " << i << ", scale " << scale << ", upstream " << upstream;
          const bool all = theirs.all().item<bool>();
          ++(all ? finite : overflowing);
          if (all) {
            EXPECT_LT(relative_error(got, want), 4 * kHalfUnit)
                << "gradient " << i;  // as many roundings at most
          }
        }
      }
    }
  }
  EXPECT_GT(overflowing, 20);
  EXPECT_GT(finite, 60);
}

TEST(Fp16Linear, GradientsOfAnFp16InputStayFp16) {
  Leaves t(1);
  const at::Tensor x = leaf(t.x.detach().to(at::kHalf));
  const ComputeDtypeGuard guard(at::kHalf);
  linear(x, t.w, t.bias, {t.a, t.b, 2.0, {}}).backward(at::full({6, 9}, 60000.0, at::kHalf));
  EXPECT_EQ(x.grad().scalar_type(), at::kHalf);
  EXPECT_FALSE(at::isfinite(x.grad()).all().item<bool>());
  EXPECT_TRUE(at::isinf(t.bias.grad()).all().item<bool>())
      << "6 x 60,000, rounded to FP16 before it is a float32 gradient";
}

TEST(Fp16Linear, DropoutInTheUpdateIsThatOfFloat32) {
  const DropoutGuard position({5, 1, 0});
  const DropoutMask mask = dropout_mask(0.3, "layer");
  Leaves t(1), u(1);
  const at::Tensor dy = fill_by_hash("dy", {6, 9});
  linear(u.x, u.w, u.bias, {u.a, u.b, 2.0, mask}).backward(dy);
  const ComputeDtypeGuard guard(at::kHalf);
  linear(t.x, t.w, t.bias, {t.a, t.b, 2.0, mask}).backward(dy.to(at::kHalf));
  for (size_t i = 0; i < t.all().size(); ++i)
    EXPECT_LT(relative_error(t.all()[i].grad(), u.all()[i].grad()), 6 * kHalfUnit) << i;
}

TEST(Fp16TokenLogprobs, AreTorchsUnderAutocastForEverySizeOfScale) {
  const at::Tensor targets = at::tensor({3, 0, 96, 3, 50}, at::kLong);
  for (const double scale :
       {1e-4, 1.0, 4096.0, 65536.0, 1e7}) {  // the loss scale: the last two overflow
    for (const bool trained : {false, true}) {
      const at::Tensor h = leaf(fill_by_hash("h", {5, 16}) * 8), h2 = leaf(h);
      const at::Tensor w = leaf(fill_by_hash("head", {97, 16}) * 2).set_requires_grad(trained),
                       w2 = leaf(w).set_requires_grad(trained);
      {
        const ComputeDtypeGuard guard(at::kHalf);
        (token_logprobs(h, w, targets).sum() * (-scale)).backward();
      }
      {
        const Autocast autocast(at::kHalf);
        const at::Tensor logits = at::linear(h2, w2).to(at::kFloat);
        (at::log_softmax(logits, -1).gather(1, targets.unsqueeze(1)).sum() * (-scale)).backward();
      }
      const at::Tensor seen = at::isfinite(h2.grad());
      EXPECT_TRUE(at::equal(at::isfinite(h.grad()), seen)) << scale;
      EXPECT_EQ(seen.all().item<bool>(), scale < 1e4);
      EXPECT_EQ(w.grad().defined(), trained);
      if (scale > 1e4) continue;
      EXPECT_LT(relative_error(h.grad(), h2.grad()), scale < 1 ? 0.02 : 4 * kHalfUnit)
          << scale;  // 1e-4: subnormals, in steps of 6e-8
      if (trained) {
        EXPECT_LT(relative_error(w.grad(), w2.grad()), scale < 1 ? 0.02 : 4 * kHalfUnit) << scale;
      }
    }
  }
}

TEST(Fp16TokenLogprobs,
     SlicesOfTheHeadAddUpInFloat32) {  // 5,000 rows are more than one slice of 4,096
  const at::Tensor w = fill_by_hash("head", {5000, 8}).to(at::kHalf),
                   targets = at::tensor({4999, 1}, at::kLong);
  const at::Tensor h = leaf(fill_by_hash("h", {2, 8})),
                   h2 = leaf(h.detach().to(at::kHalf).to(at::kFloat));
  const ComputeDtypeGuard guard(at::kHalf);
  const at::Tensor got = token_logprobs(h, w, targets);
  got.sum().backward();
  const ComputeDtypeGuard wide(at::kFloat);
  const at::Tensor want = token_logprobs(h2, w, targets);
  want.sum().backward();
  EXPECT_LT(max_abs_diff(got, want), 2 * kHalfUnit * 2);  // logits below 2
  EXPECT_LT(relative_error(h.grad(), h2.grad()), 4 * kHalfUnit);
}

std::map<std::string, at::Tensor> gradients(Model& model, at::ScalarType compute, double scale) {
  for (auto& item : model->named_parameters()) item.value().mutable_grad() = at::Tensor();
  const ComputeDtypeGuard guard(compute);
  (test::loss_sum(model, tiny_batch(model->config)) * scale).backward();
  std::map<std::string, at::Tensor> result;
  for (auto& item : model->named_parameters()) {
    if (item.value().grad().defined())
      result[item.key()] = item.value().grad().to(at::kDouble) / scale;
  }
  return result;
}

Model adapted_model(bool whole, at::ScalarType stored = at::kFloat) {
  Model model = make_llava(tiny_config(), stored);
  if (!whole) {
    const std::vector<LinearSite> sites = select_sites(
        linear_sites(*model), {"llm:all-linear", "vision:all-linear", "projector:all-linear"});
    inject_lora(sites, {.variant = "lora", .rank = 4, .alpha = 8, .dropout = 0}, 1);
    fill_adapters(model);
  }
  make_trainable(*model, whole ? std::vector<std::string>{"all"} : std::vector<std::string>{});
  return model;
}

double error_of_all(const std::map<std::string, at::Tensor>& got,
                    const std::map<std::string, at::Tensor>& want) {
  EXPECT_EQ(got.size(), want.size());
  double difference = 0, size = 0;
  for (const auto& [name, gradient] : want) {
    difference += (got.at(name) - gradient).square().sum().item<double>();
    size += gradient.square().sum().item<double>();
  }
  return std::sqrt(difference / size);
}

// Both dtypes round at the same places, so errors of the gradients scale with the unit: an eighth
// of BF16's, within random variation.
TEST(Fp16Model, GradientsAreNearFloat32ByTheUnitOfTheDtype) {
  for (const bool whole : {false, true}) {
    Model model = adapted_model(whole);
    const auto exact = gradients(model, at::kFloat, 1), half = gradients(model, at::kHalf, 1024),
               brain = gradients(model, at::kBFloat16, 1);
    EXPECT_GT(half.size(), 50u);
    const double error = error_of_all(half, exact);
    EXPECT_LT(error, 20 * kHalfUnit);  // about 80 roundings from pixels to gradient, as a random
                                       // walk: 9 units, twice that at worst
    EXPECT_LT(error, error_of_all(brain, exact) / 4);
    double largest = 0;
    for (const auto& [name, gradient] : exact)
      largest = std::max(largest, gradient.norm().item<double>());
    for (const auto& [name, gradient] :
         exact) {  // a single tensor can be a sum that cancels (a key's bias to zero)
      const double difference = (half.at(name) - gradient).norm().item<double>();
      EXPECT_LT(difference, 60 * kHalfUnit * gradient.norm().item<double>() + kHalfUnit * largest)
          << name;
    }
  }
}

TEST(Fp16Model, ABaseStoredInFp16OrBf16) {
  Model wide = adapted_model(false), half = adapted_model(false, at::kHalf),
        brain = adapted_model(false, at::kBFloat16);
  const auto exact = gradients(wide, at::kFloat, 1);
  EXPECT_LT(error_of_all(gradients(half, at::kHalf, 1024), exact),
            40 * kHalfUnit);  // the weights are rounded, too
  // Against the same rounded weights: only the embeddings that receive image features are BF16 and
  // round these once.
  EXPECT_LT(error_of_all(gradients(brain, at::kHalf, 1024), gradients(brain, at::kFloat, 1)),
            (20 + 4 * 8) * kHalfUnit);
}

TEST(Fp16Model, SmallGradientsVanishUnlessTheLossIsScaled) {
  Model model = adapted_model(false);
  const double tiny = 1e-7, scale = 65536;
  const auto exact = gradients(model, at::kFloat, 1),
             scaled = gradients(model, at::kHalf, tiny * scale),
             lost = gradients(model, at::kHalf, tiny);
  EXPECT_LT(error_of_all(scaled, exact), 30 * kHalfUnit);
  EXPECT_GT(error_of_all(lost, exact), 0.5) << "most of it is below 2^-25";
  EXPECT_LT(error_of_all(gradients(model, at::kBFloat16, tiny), exact), 20 * 8 * kHalfUnit)
      << "BF16 has float32's range";
}

TEST(Fp16Model, OverflowsBeyond65504AndOthersDoNot) {
  Model model = adapted_model(false);
  {
    const at::NoGradGuard no_grad;
    auto& mlp = (*model->language_model->model->layers)[0]->mlp;
    mlp->up_proj->weight.mul_(3000);
    mlp->gate_proj->weight.mul_(100);
    mlp->down_proj->weight.mul_(1e-6);
  }
  const auto finite = [&](at::ScalarType compute) {
    const ComputeDtypeGuard guard(compute);
    const at::NoGradGuard no_grad;
    return at::isfinite(test::loss_sum(model, tiny_batch(model->config))).item<bool>();
  };
  EXPECT_TRUE(finite(at::kFloat));
  EXPECT_TRUE(finite(at::kBFloat16));
  EXPECT_FALSE(finite(at::kHalf));
}

TEST(Fp16Model, TooLargeAScaleOverflowsTheGradientsAndNotTheLoss) {
  Model model = adapted_model(false);
  int64_t bad = 0;
  for (const auto& [name, gradient] : gradients(model, at::kHalf, 0x1p24))
    bad += !at::isfinite(gradient).all().item<bool>();
  EXPECT_GT(bad, 10);
  for (const auto& [name, gradient] : gradients(model, at::kBFloat16, 0x1p24))
    EXPECT_TRUE(at::isfinite(gradient).all().item<bool>()) << name;
}

TEST(Fp16Model, CacheStepsEqualTheWholePass) {
  const at::NoGradGuard no_grad;
  const ComputeDtypeGuard guard(at::kHalf);
  Model model = make_llava(tiny_config(), at::kHalf);
  family::Batch text;
  text.input_ids_bt = at::tensor({1, 20, 21, 22, 2, 5}, at::kLong).unsqueeze(0);
  const at::Tensor whole = model->all_logits(text).select(0, 0);
  KvCache cache;
  family::Batch part;
  part.input_ids_bt = text.input_ids_bt.narrow(1, 0, 3);
  at::Tensor logits = model->next_logits(part, cache);
  for (int64_t at = 3; at < 6; ++at) {
    EXPECT_LT(max_abs_diff(logits[0], whole[at - 1]),
              20 * kHalfUnit);  // logits of about 1, other orders of summation
    part.input_ids_bt = text.input_ids_bt.narrow(1, at, 1);
    logits = model->next_logits(part, cache);
  }
  EXPECT_LT(max_abs_diff(logits[0], whole[5]), 20 * kHalfUnit);
}

}  // namespace
}  // namespace lft::test::fp16_test
