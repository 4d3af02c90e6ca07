// 8-bit AdamW on the CPU against its own reference, its bucket look-up against the search, and
// cases in which every bit must stay unchanged.
#include <cmath>
#include <limits>

#include "kernels/adamw8/adamw8.h"
#include "models/ops/update/adamw8.h"
#include "models/ops/update/chunked.h"
#include "models/ops/update/cpu_update.h"
#include "models/update_support.h"

namespace lft::test::adamw8_test {
namespace {

constexpr double kUnit = 0x1p-24;  // half an ulp of 1

const AdamWOptions kOptions = {.betas = {0.9, 0.99}, .eps = 1e-3, .weight_decay = 0.1};

at::Tensor codes(int64_t count, uint64_t seed) {
  return at::randint(256, {count}, at::detail::createCPUGenerator(seed),
                     at::TensorOptions().dtype(at::kByte));
}

/// Every third block has never had a gradient.
at::Tensor scales(int64_t count, uint64_t seed) {
  at::Tensor absmax = normal({moment_blocks(count)}, seed).abs() * 0.1;
  for (int64_t b = 2; b < absmax.numel(); b += 3) absmax[b] = 0;
  return absmax;
}

AdamW8Tensor make(int64_t count, uint64_t seed, at::ScalarType grad = at::kFloat, double lr = 0.01,
                  int64_t t = 1) {
  return {.param = normal({count}, seed),
          .grad = normal({count}, seed + 1, grad),
          .exp_avg = codes(count, seed + 2),
          .exp_avg_sq = codes(count, seed + 3),
          .exp_avg_absmax = scales(count, seed + 4),
          .exp_avg_sq_absmax = scales(count, seed + 5),
          .lr = lr,
          .t = t};
}

std::vector<at::Tensor> parts(const AdamW8Tensor& tensor) {
  return {tensor.param,          tensor.exp_avg,           tensor.exp_avg_sq,
          tensor.exp_avg_absmax, tensor.exp_avg_sq_absmax, tensor.grad};
}

AdamW8Tensor copy(const AdamW8Tensor& tensor) {
  return {tensor.param.clone(),
          tensor.grad.clone(),
          tensor.exp_avg.clone(),
          tensor.exp_avg_sq.clone(),
          tensor.exp_avg_absmax.clone(),
          tensor.exp_avg_sq_absmax.clone(),
          tensor.lr,
          tensor.t};
}

std::vector<AdamW8Tensor> copy(const std::vector<AdamW8Tensor>& tensors) {
  std::vector<AdamW8Tensor> out;
  for (const AdamW8Tensor& tensor : tensors) out.push_back(copy(tensor));
  return out;
}

bool same(const AdamW8Tensor& a, const AdamW8Tensor& b) {
  const std::vector<at::Tensor> left = parts(a), right = parts(b);
  return std::equal(left.begin(), left.end(), right.begin(), same_bits);
}

void reference(const std::vector<AdamW8Tensor>& tensors, const GradVerdict& verdict) {
  test::reference<AdamW8Item, AdamW8Args>(
      tensors, kOptions, verdict,
      [](AdamW8Item& item, const AdamW8Tensor& tensor) {
        item.exp_avg = tensor.exp_avg.mutable_data_ptr<uint8_t>();
        item.exp_avg_sq = tensor.exp_avg_sq.mutable_data_ptr<uint8_t>();
        item.exp_avg_absmax = tensor.exp_avg_absmax.mutable_data_ptr<float>();
        item.exp_avg_sq_absmax = tensor.exp_avg_sq_absmax.mutable_data_ptr<float>();
      },
      [](const AdamW8Args& args) {
        AdamW8Args with_maps = args;
        with_maps.maps = &code_maps();
        adamw8_ref(with_maps);
      });
}

at::Tensor wide(const at::Tensor& x) { return x.to(at::kDouble); }
bool within(const at::Tensor& a, const at::Tensor& b, const at::Tensor& tolerance) {
  return ((wide(a) - wide(b)).abs() <= tolerance).all().item<bool>();
}
/// Per element, the value of its block.
at::Tensor spread(const at::Tensor& blocks, int64_t count) {
  return wide(blocks).repeat_interleave(kMomentBlock).narrow(0, 0, count);
}

/// Codes of moments whose exact values are `moment`, for blocks with a scale: nearest_code of
/// the quotient minus and plus its error.
void expect_codes(const at::Tensor& got, const at::Tensor& moment, const at::Tensor& scale,
                  const at::Tensor& error, const CodeMap& map) {
  const at::Tensor middles =
      at::from_blob(const_cast<float*>(map.middle), {255}, at::kFloat).to(at::kDouble);
  const at::Tensor live = scale > 0, quotient = at::where(live, moment / scale, -2),
                   slack = at::where(live, error / scale + 2 * kUnit, 0);
  const at::Tensor low = at::bucketize(quotient - slack, middles),
                   high = at::bucketize(quotient + slack, middles);
  EXPECT_TRUE((got >= low).logical_and(got <= high).all().item<bool>());
  if (got.numel() > 1000) {
    EXPECT_LT((low != high).to(at::kDouble).mean().item<double>(),
              1e-2);  // a small allowance
  }
}

/// One update from equal inputs. The float32 moments: as in test_adamw.cpp, plus one rounding
/// for decoding; their scales like the largest moment.
void expect_one_step(const AdamW8Tensor& before, const AdamW8Tensor& got, const AdamW8Tensor& want,
                     double clip) {
  const int64_t count = before.param.numel();
  if (count == 0) return;
  const auto [beta1, beta2] = kOptions.betas;
  const CodeMap &first = code_maps().exp_avg, &second = code_maps().exp_avg_sq;
  const auto decoded = [&](const at::Tensor& codes, const at::Tensor& absmax, const CodeMap& map) {
    const at::Tensor values =
        at::from_blob(const_cast<float*>(map.value), {256}, at::kFloat).to(at::kDouble);
    return values.index_select(0, codes.to(at::kInt)) * spread(absmax, count);
  };
  const at::Tensor m0 = decoded(before.exp_avg, before.exp_avg_absmax, first),
                   g = wide(before.grad) * clip;
  const at::Tensor v = decoded(before.exp_avg_sq, before.exp_avg_sq_absmax, second) * beta2 +
                       g.square() * (1 - beta2);
  const at::Tensor m = m0 + (g - m0) * (1 - beta1), m_error = 9 * kUnit * (m0.abs() + g.abs()),
                   v_error = 8 * kUnit * v;
  const at::Tensor m_scale = spread(want.exp_avg_absmax, count),
                   v_scale = spread(want.exp_avg_sq_absmax, count);
  const double m_most = m_error.max().item<double>();
  EXPECT_TRUE(within(got.exp_avg_absmax, want.exp_avg_absmax, at::full({}, m_most, at::kDouble)));
  EXPECT_TRUE(within(got.exp_avg_sq_absmax, want.exp_avg_sq_absmax,
                     8 * kUnit * wide(want.exp_avg_sq_absmax)));
  const double root = 1 / std::sqrt(1 - std::pow(beta2, static_cast<double>(before.t)));
  const double step_size = before.lr / (1 - std::pow(beta1, static_cast<double>(before.t)));
  const at::Tensor slope = step_size / (v.sqrt() * root + kOptions.eps);
  const at::Tensor p = wide(before.param).abs(),
                   update = before.lr * kOptions.weight_decay * p + slope * m.abs();
  EXPECT_TRUE(within(got.param, want.param,
                     2 * kUnit * (p + update) + 12 * kUnit * update + slope * m_error));
  const at::Tensor m_scale_error = (spread(got.exp_avg_absmax, count) - m_scale).abs();
  expect_codes(got.exp_avg, m, m_scale, m_error + m_scale_error, first);
  expect_codes(got.exp_avg_sq, v, v_scale, v_error + 8 * kUnit * v, second);
}

TEST(AdamW8Update, EqualsTheReferenceAtEverySizeAndType) {
  std::vector<AdamW8Tensor> tensors;
  uint64_t seed = 0;
  for (const int64_t count : {0, 1, 3, 255, 256, 257, 1023, 4096, 16384, 16385, 50001}) {
    for (const at::ScalarType dtype : kGradTypes) {
      seed += 6;
      tensors.push_back(make(count, seed, dtype, 0.01 / static_cast<double>(1 + seed % 3),
                             1 + static_cast<int64_t>(seed % 500)));
    }
  }
  for (const double max_norm : {0.0, 100.0}) {
    const std::vector<AdamW8Tensor> got = copy(tensors), want = copy(tensors);
    const GradVerdict checked = verdict(tensors, max_norm);
    const double clip = read_stats(checked).clip;
    EXPECT_EQ(clip<1, max_norm> 0);
    adamw8_(got, kOptions, checked);
    reference(want, checked);
    for (size_t i = 0; i < tensors.size(); ++i) expect_one_step(tensors[i], got[i], want[i], clip);
  }
}

TEST(AdamW8Update, BucketsFindWhatTheSearchFinds) {
  for (const CodeMap* map : {&code_maps().exp_avg, &code_maps().exp_avg_sq}) {
    const bool is_signed = map->value[0] < 0;
    const loops::MomentCode code{*map};
    std::vector<float> numbers = {0, 1, 0x1p-24f, 0x1p-126f, 0x1p-149f};
    for (int i = 0; i < 255; ++i) {
      for (const float x : {map->middle[i], map->value[i]}) {
        numbers.insert(numbers.end(), {x, std::nextafter(x, 2.f), std::nextafter(x, -2.f)});
      }
    }
    for (uint32_t bits = 0x30000000; bits <= 0x3F800000;
         bits += 0x10000) {  // both ends of every bucket
      for (const uint32_t edge : {bits, bits - 1}) numbers.push_back(bits_to_float(edge));
    }
    const size_t positive = numbers.size();
    for (size_t i = 0; is_signed && i < positive; ++i) numbers.push_back(-numbers[i]);
    std::erase_if(numbers, [&](float x) { return std::abs(x) > 1 || (!is_signed && x < 0); });
    // With both betas 0 and rate 0, the moments become g and g^2: the codes of exp_avg are
    // those of g over the largest.
    for (size_t first = 0; first < numbers.size(); first += 255) {
      std::vector<float> block(
          numbers.begin() + static_cast<std::ptrdiff_t>(first),
          numbers.begin() + static_cast<std::ptrdiff_t>(std::min(first + 255, numbers.size())));
      block.push_back(1);  // the scale
      std::vector<uint8_t> found(block.size()), unused(block.size());
      std::vector<float> param(block.size(), 0);
      float absmax = 0, unused_absmax = 0;
      AdamWRates keep;  // beta2 0, steps of 0
      keep.rest1 = 1;
      keep.eps = 1;
      loops::adamw8(param.data(), {FloatType::kF32, block.data()}, {found.data(), &absmax, code},
                    {unused.data(), &unused_absmax, code}, static_cast<int64_t>(block.size()),
                    keep);
      ASSERT_EQ(absmax, 1);
      for (size_t i = 0; i < block.size(); ++i)
        ASSERT_EQ(found[i], nearest_code(*map, block[i])) << block[i];
    }
  }
}

TEST(AdamW8Update, ANonFiniteGradientOrLossLeavesEveryBit) {
  const std::vector<AdamW8Tensor> before = {make(20000, 1), make(7, 9)};
  const std::vector<AdamW8Tensor> tensors = copy(before);
  adamw8_(tensors, kOptions,
          check_gradients({at::full({1}, std::numeric_limits<float>::infinity())}, 1, 1, {}));
  adamw8_(tensors, kOptions, check_gradients({at::ones({1})}, 1, 1, at::full({}, std::nan(""))));
  for (size_t i = 0; i < before.size(); ++i) EXPECT_TRUE(same(tensors[i], before[i]));
  adamw8_(tensors, kOptions, check_gradients({at::ones({1})}, 1, 1, at::ones({})));
  for (size_t i = 0; i < before.size(); ++i) EXPECT_FALSE(same(tensors[i], before[i]));
}

TEST(AdamW8Update, ThreadsChangeNoBit) {
  std::vector<AdamW8Tensor> before;
  for (int i = 0; i < 30; ++i)
    before.push_back(make(i % 5 == 0 ? 60000 : 31 * i, 10 * i, kGradTypes[i % 3], 0.01, i + 1));
  std::vector<std::vector<AdamW8Tensor>> results;
  for (const int threads : {1, 2, 3}) {
    const Threads guard(threads);
    results.push_back(copy(before));
    adamw8_(results.back(), kOptions, verdict(before, 1));
  }
  for (size_t run = 1; run < results.size(); ++run) {
    for (size_t i = 0; i < before.size(); ++i)
      EXPECT_TRUE(same(results[run][i], results[0][i])) << i;
  }
}

TEST(AdamW8Update, DecodingIsValueTimesScale) {
  const AdamW8Tensor tensor = make(600, 4);
  for (const bool is_signed : {true, false}) {
    const CodeMap& map = is_signed ? code_maps().exp_avg : code_maps().exp_avg_sq;
    const at::Tensor decoded =
        decode_moment(tensor.exp_avg.view({20, 30}), tensor.exp_avg_absmax, is_signed);
    ASSERT_EQ(decoded.sizes(), at::IntArrayRef({20, 30}));
    const uint8_t* const code = tensor.exp_avg.const_data_ptr<uint8_t>();
    const float* const absmax = tensor.exp_avg_absmax.const_data_ptr<float>();
    for (int64_t i = 0; i < 600; ++i)
      ASSERT_EQ(decoded.const_data_ptr<float>()[i], map.value[code[i]] * absmax[i / kMomentBlock])
          << i;
  }
}

TEST(AdamW8Update, CountsAsAnInPlaceWriteForAutograd) {
  const AdamW8Tensor tensor = make(4, 1);
  const auto version = tensor.param._version();
  adamw8_({tensor}, kOptions, verdict({tensor}));
  EXPECT_GT(tensor.param._version(), version);
}

TEST(AdamW8Update, RefusesWhatItCannotUpdate) {
  const AdamW8Tensor good = make(600, 1);
  const GradVerdict checked = verdict({good});
  const auto said = [&](const std::function<void(AdamW8Tensor&)>& spoil) {
    AdamW8Tensor bad = copy(good);
    spoil(bad);
    return error_of([&] { adamw8_({good, bad}, kOptions, checked); }, ErrorKind::kInternal).what;
  };
  EXPECT_EQ(said([](AdamW8Tensor& t) { t.param = t.param.to(at::kBFloat16); }),
            "tensor 1: the parameter must be contiguous float32");
  EXPECT_EQ(said([](AdamW8Tensor& t) { t.exp_avg = at::zeros({600}); }),
            "tensor 1: codes must be contiguous uint8");
  EXPECT_EQ(
      said([](AdamW8Tensor& t) { t.exp_avg_sq_absmax = t.exp_avg_sq_absmax.to(at::kDouble); }),
      "tensor 1: the scales of blocks must be contiguous float32");
  EXPECT_EQ(said([](AdamW8Tensor& t) { t.exp_avg_absmax = at::zeros({2}); }),
            "tensor 1: sizes differ");
  EXPECT_EQ(said([](AdamW8Tensor& t) { t.grad = at::zeros({5}); }), "tensor 1: sizes differ");
  EXPECT_NE(said([](AdamW8Tensor& t) {
              t.grad = at::Tensor();
            }).find("tensor 1: the gradient is not a dense"),
            std::string::npos);
  EXPECT_EQ(said([](AdamW8Tensor& t) { t.t = 0; }), "tensor 1: updates count from 1");
  EXPECT_EQ(error_of([&] { adamw8_({good}, kOptions, {}); }, ErrorKind::kInternal).what,
            "the gradients were not checked");
}

/// Same as AdamWTensor (test_adamw.cpp).
TEST(AdamW8Update, WritesACopyWithTheParameter) {
  AdamW8Tensor tensor = make(2 * kChunk + 301, 1);
  const at::Tensor before = tensor.param.clone();
  tensor.copy = {.copy = at::zeros({tensor.param.numel()}, at::kBFloat16), .scale = 1.7};
  adamw8_({tensor}, kOptions, verdict({tensor}));
  EXPECT_FALSE(same_bits(tensor.param, before));
  EXPECT_TRUE(same_bits(tensor.copy.copy, (tensor.param * 1.7).to(at::kBFloat16)));
}

}  // namespace
}  // namespace lft::test::adamw8_test
