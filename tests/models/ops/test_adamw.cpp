// AdamW on the CPU against torch's fused op, against its own reference, and cases in which every
// bit must stay unchanged.
#include <cmath>
#include <limits>

#include "kernels/adamw/adamw.h"
#include "models/ops/update/adamw.h"
#include "models/ops/update/chunked.h"
#include "models/update_support.h"

namespace lft::test::adamw_test {
namespace {

constexpr double kUnit = 0x1p-24;  // half an ulp of 1

const AdamWOptions kOptions = {.betas = {0.9, 0.99}, .eps = 1e-3, .weight_decay = 0.1};

AdamWTensor make(int64_t count, uint64_t seed, at::ScalarType grad = at::kFloat, double lr = 0.01,
                 int64_t t = 1) {
  return {normal({count}, seed),
          normal({count}, seed + 1, grad),
          normal({count}, seed + 2) * 0.3,
          normal({count}, seed + 3).square() * 0.5,
          lr,
          t};
}

AdamWTensor copy(const AdamWTensor& tensor) {
  return {tensor.param.clone(),      tensor.grad.clone(), tensor.exp_avg.clone(),
          tensor.exp_avg_sq.clone(), tensor.lr,           tensor.t};
}

std::vector<AdamWTensor> copy(const std::vector<AdamWTensor>& tensors) {
  std::vector<AdamWTensor> out;
  for (const AdamWTensor& tensor : tensors) out.push_back(copy(tensor));
  return out;
}

bool same(const AdamWTensor& a, const AdamWTensor& b) {
  return same_bits(a.param, b.param) && same_bits(a.exp_avg, b.exp_avg) &&
         same_bits(a.exp_avg_sq, b.exp_avg_sq) && same_bits(a.grad, b.grad);
}

double max_error(const at::Tensor& a, const at::Tensor& b) {
  return (a.to(at::kDouble) - b.to(at::kDouble)).abs().max().item<double>();
}

void reference(const std::vector<AdamWTensor>& tensors, const GradVerdict& verdict) {
  test::reference<AdamWItem, AdamWArgs>(
      tensors, kOptions, verdict,
      [](AdamWItem& item, const AdamWTensor& tensor) {
        item.exp_avg = tensor.exp_avg.mutable_data_ptr<float>();
        item.exp_avg_sq = tensor.exp_avg_sq.mutable_data_ptr<float>();
      },
      adamw_ref);
}

/// One update from equal inputs. exp_avg: four roundings of parts no larger than 2 (|m| + |g|);
/// exp_avg_sq: six of positive parts; the parameter: its own two, and ten of the update plus the
/// error of exp_avg in it.
void expect_one_step(const AdamWTensor& before, const AdamWTensor& got, const AdamWTensor& want,
                     double clip) {
  const auto wide = [](const at::Tensor& x) { return x.to(at::kDouble); };
  const at::Tensor average_error =
      8 * kUnit * (wide(before.exp_avg).abs() + wide(before.grad).abs() * clip);
  const double root = 1 / std::sqrt(1 - std::pow(kOptions.betas[1], static_cast<double>(before.t)));
  const double step_size =
      before.lr / (1 - std::pow(kOptions.betas[0], static_cast<double>(before.t)));
  const at::Tensor slope = step_size / (wide(want.exp_avg_sq).sqrt() * root + kOptions.eps);
  const at::Tensor p = wide(before.param).abs(), update = before.lr * kOptions.weight_decay * p +
                                                          slope * wide(want.exp_avg).abs();
  const auto within = [&](const at::Tensor& a, const at::Tensor& b, const at::Tensor& tolerance) {
    return ((wide(a) - wide(b)).abs() <= tolerance).all().item<bool>();
  };
  EXPECT_TRUE(within(got.exp_avg, want.exp_avg, average_error));
  EXPECT_TRUE(within(got.exp_avg_sq, want.exp_avg_sq, 6 * kUnit * wide(want.exp_avg_sq)));
  EXPECT_TRUE(within(got.param, want.param,
                     2 * kUnit * (p + update) + 10 * kUnit * update + slope * average_error));
}

TEST(AdamWUpdate, EqualsTheReferenceAtEverySizeAndType) {
  std::vector<AdamWTensor> tensors;
  uint64_t seed = 0;
  for (const int64_t count : {0, 1, 3, 8, 17, 1023, 16384, 16385, 50001}) {
    for (const at::ScalarType dtype : kGradTypes) {
      seed += 4;
      tensors.push_back(make(count, seed, dtype, 0.01 / static_cast<double>(1 + seed % 3),
                             1 + static_cast<int64_t>(seed % 500)));
      AdamWTensor misaligned = make(count + 1, seed + 1000, dtype);
      for (at::Tensor* part :
           {&misaligned.param, &misaligned.grad, &misaligned.exp_avg, &misaligned.exp_avg_sq})
        *part = part->narrow(0, 1, count);
      tensors.push_back(misaligned);
    }
  }
  for (const double max_norm : {0.0, 100.0}) {
    const std::vector<AdamWTensor> got = copy(tensors), want = copy(tensors);
    const GradVerdict checked = verdict(tensors, max_norm);
    const double clip = read_stats(checked).clip;
    EXPECT_EQ(clip<1, max_norm> 0);
    adamw_(got, kOptions, checked);
    reference(want, checked);
    for (size_t i = 0; i < tensors.size(); ++i) expect_one_step(tensors[i], got[i], want[i], clip);
  }
}

// Fifty steps against torch in double. A step rounds the parameter twice (2 u |p|, |p| < 4.5); its
// update, below 3.2 lr (Adam's bound (1 - beta1) / sqrt(1 - beta2) is 1), has an error below 150
// u: 3 u per step of exp_avg_sq, halved by the root, and 64 u of exp_avg.
TEST(AdamWUpdate, EqualsTorchOverManySteps) {
  constexpr int kSteps = 50;
  constexpr double kLr = 0.02;
  const at::Tensor start = normal({3000}, 1);
  AdamWTensor own = {start.clone(), {}, at::zeros({3000}), at::zeros({3000}), kLr, 0};
  std::vector<at::Tensor> wide = {start.to(at::kDouble)},
                          wide_average = {at::zeros({3000}, at::kDouble)},
                          wide_square = {wide_average[0].clone()};
  std::vector<at::Tensor> narrow = {start.clone()}, average = {at::zeros({3000})},
                          square = {at::zeros({3000})};
  std::vector<at::Tensor> steps = {at::zeros({})};
  for (int step = 0; step < kSteps; ++step) {
    own.grad = normal({3000}, 100 + step) * 0.1;
    own.t = step + 1;
    const double lr = own.lr = kLr * (1 - step / 100.0);
    adamw_({own}, kOptions, verdict({own}));
    steps[0] += 1;
    const std::vector<at::Tensor> grads = {own.grad}, wide_grads = {own.grad.to(at::kDouble)};
    const auto [beta1, beta2] = kOptions.betas;
    at::_fused_adamw_(narrow, grads, average, square, {}, steps, lr, beta1, beta2,
                      kOptions.weight_decay, kOptions.eps, false, false);
    at::_fused_adamw_(wide, wide_grads, wide_average, wide_square, {}, steps, lr, beta1, beta2,
                      kOptions.weight_decay, kOptions.eps, false, false);
  }
  const double tolerance = kSteps * kUnit * (2 * 4.5 + 150 * 3.2 * kLr);
  EXPECT_GT(max_error(own.param, start), 0.1);
  EXPECT_LT(max_error(own.param, wide[0]), tolerance);
  EXPECT_LT(max_error(own.param, narrow[0]), 2 * tolerance);
  EXPECT_LT(max_error(own.exp_avg, wide_average[0]), 16 * kUnit * 0.5);
  EXPECT_LT(max_error(own.exp_avg_sq, wide_square[0]),
            3 * kSteps * kUnit * wide_square[0].max().item<double>());
}

TEST(AdamWUpdate, ClipsAsTorchDoesWithClippedGradients) {
  const std::vector<AdamWTensor> before = {make(4000, 1), make(33, 9, at::kBFloat16)};
  const std::vector<AdamWTensor> clipped = copy(before), by_hand = copy(before);
  const GradVerdict checked = verdict(before, 5);
  const double clip = read_stats(checked).clip;
  EXPECT_LT(clip, 0.1);
  adamw_(clipped, kOptions, checked);
  const GradVerdict open = verdict(before);
  for (size_t i = 0; i < before.size(); ++i) {
    AdamWTensor scaled = by_hand[i];
    scaled.grad = scaled.grad.to(at::kFloat) * clip;
    reference({scaled}, open);
    expect_one_step(before[i], clipped[i], by_hand[i], clip);
    EXPECT_TRUE(same_bits(clipped[i].grad, before[i].grad));  // clipped in the update, not in place
  }
}

TEST(AdamWUpdate, ANonFiniteGradientOrLossLeavesEveryBit) {
  const std::vector<AdamWTensor> before = {make(20000, 1), make(7, 9)};
  const std::vector<AdamWTensor> tensors = copy(before);
  adamw_(tensors, kOptions,
         check_gradients({at::full({1}, std::numeric_limits<float>::infinity())}, 1, 1, {}));
  adamw_(tensors, kOptions, check_gradients({at::ones({1})}, 1, 1, at::full({}, std::nan(""))));
  for (size_t i = 0; i < before.size(); ++i) EXPECT_TRUE(same(tensors[i], before[i]));
  adamw_(tensors, kOptions, check_gradients({at::ones({1})}, 1, 1, at::ones({})));
  for (size_t i = 0; i < before.size(); ++i) EXPECT_FALSE(same(tensors[i], before[i]));
}

TEST(AdamWUpdate, LearningRateZeroMovesTheMomentsAlone) {
  const AdamWTensor before = make(1000, 1, at::kFloat, /*lr=*/0, /*t=*/3), tensor = copy(before);
  adamw_({tensor}, kOptions, verdict({tensor}));
  EXPECT_TRUE(same_bits(tensor.param, before.param));
  EXPECT_FALSE(same_bits(tensor.exp_avg, before.exp_avg));
}

TEST(AdamWUpdate, DecayIsDecoupled) {
  AdamWTensor tensor = {
      at::tensor({2.0f, -8.0f}), at::zeros({2}), at::zeros({2}), at::zeros({2}), 0.5, 4};
  adamw_({tensor}, {.betas = {0.9, 0.999}, .eps = 1e-8, .weight_decay = 0.25}, verdict({tensor}));
  EXPECT_TRUE(at::equal(tensor.param, at::tensor({1.75f, -7.0f})));
}

TEST(AdamWUpdate, ThreadsChangeNoBit) {
  std::vector<AdamWTensor> before;
  for (int i = 0; i < 30; ++i)
    before.push_back(make(i % 5 == 0 ? 60000 : 31 * i, 10 * i, kGradTypes[i % 3], 0.01, i + 1));
  std::vector<std::vector<AdamWTensor>> results;
  for (const int threads : {1, 2, 3}) {
    const Threads guard(threads);
    results.push_back(copy(before));
    adamw_(results.back(), kOptions, verdict(before, 1));
  }
  for (size_t run = 1; run < results.size(); ++run) {
    for (size_t i = 0; i < before.size(); ++i)
      EXPECT_TRUE(same(results[run][i], results[0][i])) << i;
  }
}

/// Bit-equal to a cast of the updated parameter, over several chunks and a partial last chunk;
/// where nothing is updated, neither is the copy.
TEST(AdamWUpdate, WritesACopyWithTheParameter) {
  for (const at::ScalarType dtype : {at::kBFloat16, at::kHalf}) {
    for (const double scale : {1.0, 2.0, 1.7}) {
      const AdamWTensor start = make(2 * kChunk + 301, 1);
      const GradVerdict checked = verdict({start}, 3);
      AdamWTensor tensor = copy(start);
      tensor.copy = {.copy = at::zeros({start.param.numel()}, dtype), .scale = scale};
      adamw_({tensor}, kOptions, check_gradients({at::full({1}, std::nanf(""))}, 1, 1, {}));
      EXPECT_EQ(tensor.copy.copy.count_nonzero().item<int64_t>(), 0);
      adamw_({tensor}, kOptions, checked);
      EXPECT_FALSE(same_bits(tensor.param, start.param));
      EXPECT_TRUE(same_bits(tensor.copy.copy, (tensor.param * scale).to(dtype)))
          << dtype << " " << scale;
    }
  }
}

TEST(AdamWUpdate, CountsAsAnInPlaceWriteForAutograd) {
  const AdamWTensor tensor = make(4, 1);
  const auto version = tensor.param._version();
  adamw_({tensor}, kOptions, verdict({tensor}));
  EXPECT_GT(tensor.param._version(), version);
}

TEST(AdamWUpdate, RefusesWhatItCannotUpdate) {
  const AdamWTensor good = make(6, 1);
  const GradVerdict checked = verdict({good});
  const auto said = [&](const std::function<void(AdamWTensor&)>& spoil) {
    AdamWTensor bad = copy(good);
    spoil(bad);
    return error_of([&] { adamw_({good, bad}, kOptions, checked); }, ErrorKind::kInternal).what;
  };
  const std::string masters = "tensor 1: parameter and moments must be contiguous float32";
  EXPECT_EQ(said([](AdamWTensor& t) { t.param = t.param.to(at::kBFloat16); }), masters);
  EXPECT_EQ(said([](AdamWTensor& t) { t.exp_avg = at::zeros({6, 2}).select(1, 0); }), masters);
  EXPECT_NE(said([](AdamWTensor& t) {
              t.grad = t.grad.to(at::kDouble);
            }).find("tensor 1: the gradient is not a dense"),
            std::string::npos);
  EXPECT_NE(said([](AdamWTensor& t) {
              t.grad = at::Tensor();
            }).find("tensor 1: the gradient is not a dense"),
            std::string::npos);
  EXPECT_EQ(said([](AdamWTensor& t) { t.grad = at::zeros({5}); }), "tensor 1: sizes differ");
  EXPECT_EQ(said([](AdamWTensor& t) { t.t = 0; }), "tensor 1: updates count from 1");
  const std::string copies = "tensor 1: the copy is not a contiguous bfloat16 or float16 tensor";
  EXPECT_EQ(said([](AdamWTensor& t) { t.copy.copy = at::zeros({6}); }), copies);
  EXPECT_EQ(said([](AdamWTensor& t) {
              t.copy.copy = at::zeros({6, 2}, at::kHalf).select(1, 0);
            }),
            copies);
  EXPECT_EQ(said([](AdamWTensor& t) { t.copy.copy = at::zeros({5}, at::kHalf); }),
            "tensor 1: sizes differ");
  EXPECT_EQ(
      said([](AdamWTensor& t) { t.grad = at::zeros({6}, at::TensorOptions().device(at::kMeta)); }),
      "tensor 1 is not where its gradients were checked");
  EXPECT_EQ(error_of([&] { adamw_({good}, kOptions, {}); }, ErrorKind::kInternal).what,
            "the gradients were not checked");
}

}  // namespace
}  // namespace lft::test::adamw_test
