// 8-bit AdamW: code maps against bitsandbytes' numbers, the reference against closed forms and
// against AdamW on the decoded moments, and the kernel against the reference. The comparison
// with bitsandbytes' update is in tests/peers/test_adamw8.py.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <random>
#include <vector>

#include "kernels/adamw8/adamw8.h"
#include "kernels/arena.h"

namespace lft::adamw8_test {
namespace {

constexpr double kUnit = 0x1p-24;

/// One tensor on the host.
struct Tensor {
  std::vector<float> param = {}, grad = {};  // the gradient rounded to its type
  std::vector<uint8_t> exp_avg = {}, exp_avg_sq = {}, grad_bytes = {};
  std::vector<float> exp_avg_absmax = {}, exp_avg_sq_absmax = {};
  std::vector<uint16_t> shadow = {};  // empty: no copy is kept
  FloatType type = FloatType::kF32, shadow_type = FloatType::kBF16;
  double lr = 0.01, weight_decay = 0.1;
  int64_t t = 1;
  bool operator==(const Tensor&) const = default;
};

Tensor make(FloatType type, int64_t count, uint32_t seed, double lr = 0.01, int64_t t = 3) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 1);
  std::uniform_int_distribution<int> byte(0, 255);
  Tensor tensor{.type = type, .lr = lr, .t = t};
  const int64_t blocks = (count + kMomentBlock - 1) / kMomentBlock;
  tensor.grad_bytes.resize(count * float_type_size(type));
  tensor.shadow.resize(count);
  if (seed % 2 == 1) tensor.shadow_type = FloatType::kF16;
  for (int64_t i = 0; i < count; ++i) {
    tensor.param.push_back(0.5f * normal(random));
    store_float(type, tensor.grad_bytes.data(), i, 0.3f * normal(random));
    tensor.grad.push_back(load_float(type, tensor.grad_bytes.data(), i));
    tensor.exp_avg.push_back(static_cast<uint8_t>(byte(random)));
    tensor.exp_avg_sq.push_back(static_cast<uint8_t>(byte(random)));
  }
  for (int64_t b = 0; b < blocks; ++b) {  // some blocks have never had a gradient
    tensor.exp_avg_absmax.push_back(b % 3 == 2 ? 0 : 0.1f * std::abs(normal(random)));
    tensor.exp_avg_sq_absmax.push_back(b % 3 == 2 ? 0 : 0.01f * std::abs(normal(random)));
  }
  return tensor;
}

constexpr float kShadowScale = 1.7f;

/// Expected low-precision copy: the stored parameter times the scale in float32, rounded.
std::vector<uint16_t> shadow_of(const Tensor& tensor) {
  std::vector<uint16_t> shadow(tensor.shadow.size());
  for (size_t i = 0; i < shadow.size(); ++i) {
    const float scaled = tensor.param[i] * kShadowScale;
    store_float(tensor.shadow_type, shadow.data(), static_cast<int64_t>(i), scaled);
  }
  return shadow;
}

AdamW8Item item_of(Tensor& tensor, const AdamW8Args& args) {
  AdamW8Item item;
  item.param = tensor.param.data();
  item.exp_avg = tensor.exp_avg.data();
  item.exp_avg_sq = tensor.exp_avg_sq.data();
  item.exp_avg_absmax = tensor.exp_avg_absmax.data();
  item.exp_avg_sq_absmax = tensor.exp_avg_sq_absmax.data();
  item.grad = tensor.grad_bytes.data();
  item.count = static_cast<int64_t>(tensor.param.size());
  item.type = tensor.type;
  void* const shadow = tensor.shadow.empty() ? nullptr : tensor.shadow.data();
  item.shadow = {.data = shadow, .scale = kShadowScale, .type = tensor.shadow_type};
  set_rates(item, args, tensor.lr, tensor.weight_decay, tensor.t);
  return item;
}

void run_ref(std::vector<Tensor>& tensors, const GradControl& control, AdamW8Args args = {}) {
  std::vector<AdamW8Item> items;
  for (Tensor& tensor : tensors) items.push_back(item_of(tensor, args));
  args.items = items.data();
  args.count = static_cast<int64_t>(items.size());
  args.chunks = number_chunks(items);
  args.control = &control;
  args.maps = &code_maps();
  adamw8_ref(args);
}

// bitsandbytes 0.50.2: F.create_dynamic_map(signed) as float32. Its boundaries are rounded before
// their means: four roundings.
TEST(AdamW8Codes, AreBitsandbytesMaps) {
  struct Known {
    int code;
    double value;
  };
  const auto expect = [](const CodeMap& map, const std::vector<Known>& known) {
    for (const Known& each : known)
      EXPECT_NEAR(map.value[each.code], each.value, 4 * kUnit * std::abs(each.value)) << each.code;
    EXPECT_TRUE(std::is_sorted(map.value, map.value + 256));
    EXPECT_EQ(std::adjacent_find(map.value, map.value + 256), map.value + 256);
    for (int i = 0; i < 255; ++i)
      EXPECT_TRUE(map.value[i] < map.middle[i] && map.middle[i] < map.value[i + 1]) << i;
  };
  expect(code_maps().exp_avg, {{0, -0.992968738079071},
                               {1, -0.9789062738418579},
                               {31, -0.5570312738418579},
                               {63, -0.10703125596046448},
                               {64, -0.09859374910593033},
                               {100, -0.0074687497690320015},
                               {120, -8.874999912222847e-05},
                               {126, -5.500000384017767e-07},
                               {127, 0.0},
                               {128, 5.500000384017767e-07},
                               {129, 3.250000190746505e-06},
                               {150, 0.0052187503315508366},
                               {191, 0.10703125596046448},
                               {192, 0.12109375},
                               {230, 0.655468761920929},
                               {254, 0.992968738079071},
                               {255, 1.0}});
  expect(code_maps().exp_avg_sq, {{0, 0.0},
                                  {1, 3.2500003044333425e-07},
                                  {31, 0.0011406249832361937},
                                  {63, 0.010703125968575478},
                                  {64, 0.012109375558793545},
                                  {100, 0.06273438036441803},
                                  {120, 0.09085937589406967},
                                  {126, 0.09929687529802322},
                                  {127, 0.103515625},
                                  {128, 0.11054687201976776},
                                  {129, 0.11757812649011612},
                                  {150, 0.2652343809604645},
                                  {191, 0.5535156726837158},
                                  {192, 0.560546875},
                                  {230, 0.8277343511581421},
                                  {254, 0.9964843988418579},
                                  {255, 1.0}});
}

TEST(AdamW8Codes, TheNearestCodeIsTheNearestValue) {
  for (const CodeMap* map : {&code_maps().exp_avg, &code_maps().exp_avg_sq}) {
    for (int code = 0; code < 256; ++code) EXPECT_EQ(nearest_code(*map, map->value[code]), code);
    for (int code = 0; code < 255; ++code) {
      EXPECT_EQ(nearest_code(*map, map->middle[code]), code);  // a tie: the lower
      EXPECT_EQ(nearest_code(*map, std::nextafter(map->middle[code], 2.f)), code + 1);
      EXPECT_EQ(nearest_code(*map, std::nextafter(map->middle[code], -2.f)), code);
    }
    EXPECT_EQ(nearest_code(*map, 2.f), 255);
    EXPECT_EQ(nearest_code(*map, -2.f), 0);
    EXPECT_EQ(nearest_code(*map, std::nanf("")), 0);
  }
}

TEST(AdamW8Ref, TheFirstStepMovesByTheLearningRateInTheGradientsDirection) {
  Tensor tensor{.param = {1, 1, 1},
                .exp_avg = {0, 0, 0},
                .exp_avg_sq = {0, 0, 0},
                .exp_avg_absmax = {0},
                .exp_avg_sq_absmax = {0}};
  tensor.lr = 0.125;
  tensor.weight_decay = 0;
  tensor.grad_bytes.resize(12);
  const float gradients[] = {4, -0.25f, 0};
  for (int i = 0; i < 3; ++i)
    store_float(FloatType::kF32, tensor.grad_bytes.data(), i, gradients[i]);
  std::vector<Tensor> tensors = {tensor};
  run_ref(tensors, {});
  const Tensor& got = tensors[0];
  EXPECT_FLOAT_EQ(got.param[0], 0.875f);
  EXPECT_FLOAT_EQ(got.param[1], 1.125f);
  EXPECT_EQ(got.param[2], 1.0f);
  EXPECT_FLOAT_EQ(got.exp_avg_absmax[0], 0.4f);  // (1 - beta1) * 4
  EXPECT_FLOAT_EQ(got.exp_avg_sq_absmax[0], 0.016f);
  EXPECT_EQ(got.exp_avg[0], 255);  // the block's maximum has the code of 1
  EXPECT_EQ(got.exp_avg[2], 127);  // the code of 0
  EXPECT_EQ(got.exp_avg_sq[0], 255);
  EXPECT_EQ(got.exp_avg_sq[2], 0);
  // -0.0625 is in the decade from 0.01, whose 32 parts per side are 0.0028125 wide: within half of
  // one.
  EXPECT_NEAR(code_maps().exp_avg.value[got.exp_avg[1]], -0.0625, 0.0028125 / 2);
  EXPECT_NEAR(code_maps().exp_avg_sq.value[got.exp_avg_sq[1]], 0.0625 * 0.0625,
              0.00028125 / 2);  // 32 parts from 0.001
}

/// A block of zeros: the code of 0 would be valid; code 0 with absmax 0 is the initial state.
TEST(AdamW8Ref, ABlockOfZerosIsTheInitialState) {
  Tensor tensor = make(FloatType::kF32, 300, 1);
  std::fill(tensor.grad_bytes.begin(), tensor.grad_bytes.end(), uint8_t{0});
  for (std::vector<float>* absmax : {&tensor.exp_avg_absmax, &tensor.exp_avg_sq_absmax})
    *absmax = {0, 0};
  std::vector<Tensor> tensors = {tensor};
  run_ref(tensors, {});
  EXPECT_EQ(tensors[0].exp_avg, std::vector<uint8_t>(300, 0));
  EXPECT_EQ(tensors[0].exp_avg_sq, std::vector<uint8_t>(300, 0));
  EXPECT_EQ(tensors[0].exp_avg_absmax, std::vector<float>(2, 0));
}

/// adamw_ref on the decoded moments: the same parameter; its moments equal the decoded
/// codes within half a gap.
TEST(AdamW8Ref, IsAdamWOnTheDecodedMoments) {
  const Tensor before = make(FloatType::kBF16, 1000, 7);
  const auto decode = [](const CodeMap& map, const std::vector<uint8_t>& codes,
                         const std::vector<float>& absmax) {
    std::vector<float> values;
    for (size_t i = 0; i < codes.size(); ++i)
      values.push_back(map.value[codes[i]] * absmax[i / kMomentBlock]);
    return values;
  };
  std::vector<float> param = before.param, grad = before.grad;
  std::vector<float> m = decode(code_maps().exp_avg, before.exp_avg, before.exp_avg_absmax);
  std::vector<float> v =
      decode(code_maps().exp_avg_sq, before.exp_avg_sq, before.exp_avg_sq_absmax);
  AdamWItem item;
  item.param = param.data();
  item.exp_avg = m.data();
  item.exp_avg_sq = v.data();
  item.grad = grad.data();
  item.count = 1000;
  AdamWArgs args;
  set_rates(item, args, before.lr, before.weight_decay, before.t);
  GradControl control;
  control.clip = 0.5f;
  args.items = &item;
  args.count = 1;
  args.control = &control;
  adamw_ref(args);

  std::vector<Tensor> tensors = {before};
  run_ref(tensors, control);
  const Tensor& got = tensors[0];
  const auto gap = [](const CodeMap& map, int code) {
    return std::max(code > 0 ? map.value[code] - map.value[code - 1] : 0,
                    code < 255 ? map.value[code + 1] - map.value[code] : 0);
  };
  for (int i = 0; i < 1000; ++i) {
    // Decoding in float32 rounds once: u of each moment, and half as much after the root.
    EXPECT_NEAR(got.param[i], param[i], kUnit * (2 * std::abs(param[i]) + 4)) << i;
    const auto close = [&](const CodeMap& map, int code, float absmax, float moment) {
      EXPECT_LE(std::abs(map.value[code] * absmax - moment),
                absmax * (gap(map, code) * 0.5f + 4 * kUnit))
          << i;
    };
    close(code_maps().exp_avg, got.exp_avg[i], got.exp_avg_absmax[i / 256], m[i]);
    close(code_maps().exp_avg_sq, got.exp_avg_sq[i], got.exp_avg_sq_absmax[i / 256], v[i]);
  }
}

template <class Run>
void expect_found_inf_keeps(const std::vector<Tensor>& before, const Run& run) {
  std::vector<Tensor> tensors = before;
  GradControl control;
  control.found_inf = 1;
  run(tensors, control);
  EXPECT_TRUE(tensors == before);
}

TEST(AdamW8Ref, FoundInfKeepsEveryBit) {
  expect_found_inf_keeps({make(FloatType::kF16, 700, 2)},
                         [](auto& tensors, const auto& control) { run_ref(tensors, control); });
}

#ifdef LFT_HAVE_CUDA

/// A tensor's arrays in device memory, between `misaligned` elements of padding and a guard.
struct OnDevice {
  static constexpr size_t kFence = 8;
  template <class T>
  static std::vector<T> padded(const std::vector<T>& from, int64_t misaligned) {
    std::vector<T> out(misaligned);
    out.insert(out.end(), from.begin(), from.end());
    out.insert(out.end(), kFence, T(77));
    return out;
  }
  OnDevice(const Tensor& tensor, int64_t misaligned)
      : pad(misaligned),
        param(padded(tensor.param, pad)),
        grad(padded(tensor.grad_bytes, pad * float_type_size(tensor.type))),
        exp_avg(padded(tensor.exp_avg, pad)),
        exp_avg_sq(padded(tensor.exp_avg_sq, pad)),
        exp_avg_absmax(padded(tensor.exp_avg_absmax, pad)),
        exp_avg_sq_absmax(padded(tensor.exp_avg_sq_absmax, pad)),
        shadow(padded(tensor.shadow, pad)) {}

  AdamW8Item item(Tensor& like, const AdamW8Args& args) {
    AdamW8Item item = item_of(like, args);
    item.param = param.data() + pad;
    item.grad = grad.data() + pad * float_type_size(like.type);
    item.exp_avg = exp_avg.data() + pad;
    item.exp_avg_sq = exp_avg_sq.data() + pad;
    item.exp_avg_absmax = exp_avg_absmax.data() + pad;
    item.exp_avg_sq_absmax = exp_avg_sq_absmax.data() + pad;
    item.shadow.data = shadow.data() + pad;
    return item;
  }
  void read(Tensor& to) const {
    const auto tail = [this](const auto& host, auto& into) {
      into.assign(host.begin() + pad, host.end() - kFence);
      EXPECT_EQ(std::count(host.end() - kFence, host.end(), 77),
                static_cast<std::ptrdiff_t>(kFence))
          << "written behind the end";
    };
    tail(param.to_host(), to.param);
    tail(exp_avg.to_host(), to.exp_avg);
    tail(exp_avg_sq.to_host(), to.exp_avg_sq);
    tail(exp_avg_absmax.to_host(), to.exp_avg_absmax);
    tail(exp_avg_sq_absmax.to_host(), to.exp_avg_sq_absmax);
    tail(shadow.to_host(), to.shadow);
  }

  int64_t pad;
  test::DeviceArray<float> param;
  test::DeviceArray<uint8_t> grad, exp_avg, exp_avg_sq;
  test::DeviceArray<float> exp_avg_absmax, exp_avg_sq_absmax;
  test::DeviceArray<uint16_t> shadow;
};

void run_gpu(std::vector<Tensor>& tensors, const GradControl& control) {
  AdamW8Args args;
  std::vector<std::unique_ptr<OnDevice>> on_device;
  std::vector<AdamW8Item> items;
  for (size_t i = 0; i < tensors.size(); ++i) {
    on_device.push_back(std::make_unique<OnDevice>(tensors[i], static_cast<int64_t>(i % 2)));
    items.push_back(on_device.back()->item(tensors[i], args));
  }
  args.count = static_cast<int64_t>(items.size());
  args.chunks = number_chunks(items);
  test::DeviceArray<AdamW8Item> table(items);
  test::DeviceArray<GradControl> verdict({control});
  test::DeviceArray<CodeMaps> maps({code_maps()});
  args.items = table.data();
  args.control = verdict.data();
  args.maps = maps.data();
  adamw8(args, nullptr);
  for (size_t i = 0; i < tensors.size(); ++i) on_device[i]->read(tensors[i]);
}

/// `x` is the exact quotient; the kernel's error is less than `error`.
void expect_code(const CodeMap& map, int code, double x, double error, size_t t, size_t i) {
  ASSERT_GE(code, nearest_code(map, static_cast<float>(x - error))) << t << " " << i;
  ASSERT_LE(code, nearest_code(map, static_cast<float>(x + error))) << t << " " << i;
}

/// One update from equal inputs. The float32 moment has an error of 8 u (|m| + |g|) and 8 u v (one
/// rounding more than kernels/adamw's, for decoding), its quotient that error over the scale and
/// two more roundings; the parameter as there.
void expect_gpu_equals_ref(const std::vector<Tensor>& start, const GradControl& control) {
  std::vector<Tensor> want = start, got = start, again = start;
  run_ref(want, control);
  run_gpu(got, control);
  run_gpu(again, control);
  const AdamW8Args args;
  const CodeMap &first = code_maps().exp_avg, &second = code_maps().exp_avg_sq;
  for (size_t t = 0; t < start.size(); ++t) {
    ASSERT_TRUE(got[t] == again[t]) << t;
    ASSERT_EQ(want[t].shadow, shadow_of(want[t])) << t;
    ASSERT_EQ(got[t].shadow, shadow_of(got[t])) << t;
    Tensor copy = start[t];
    const AdamW8Item item = item_of(copy, args);
    for (size_t i = 0; i < start[t].param.size(); ++i) {
      const size_t b = i / kMomentBlock;
      const double m0 =
          static_cast<double>(first.value[start[t].exp_avg[i]]) * start[t].exp_avg_absmax[b];
      const double v0 =
          static_cast<double>(second.value[start[t].exp_avg_sq[i]]) * start[t].exp_avg_sq_absmax[b];
      const double g = start[t].grad[i] * control.clip, m = m0 + 0.1 * (g - m0),
                   v = 0.999 * v0 + (1 - 0.999) * g * g;
      const double m_error = 9 * kUnit * (std::abs(m0) + std::abs(g)), v_error = 8 * kUnit * v;
      const double m_scale = want[t].exp_avg_absmax[b], v_scale = want[t].exp_avg_sq_absmax[b];
      ASSERT_NEAR(got[t].exp_avg_sq_absmax[b], v_scale, 8 * kUnit * v_scale);
      const double slope = item.step_size / (std::sqrt(v) * item.inverse_root + args.eps),
                   p = std::abs(start[t].param[i]);
      const double update = item.decay * p + slope * std::abs(m);
      ASSERT_NEAR(got[t].param[i], want[t].param[i],
                  2 * kUnit * (p + update) + 12 * kUnit * update + slope * m_error)
          << t << " " << i;
      const double scale_error = std::abs(got[t].exp_avg_absmax[b] - m_scale);
      ASSERT_LE(scale_error, 9 * kUnit * (11 * m_scale + 3))
          << t;  // |m0| <= 10/9 (|m| + 0.1 |g|), |g| < 3: the largest of 50,000
      if (m_scale > 0)
        expect_code(first, got[t].exp_avg[i], m / m_scale,
                    (m_error + scale_error) / m_scale + 2 * kUnit, t, i);
      if (v_scale > 0)
        expect_code(second, got[t].exp_avg_sq[i], v / v_scale,
                    (v_error + 8 * kUnit * v) / v_scale + 2 * kUnit, t, i);
    }
  }
}

TEST(AdamW8Gpu, EqualsTheReferenceAtEverySizeAndType) {
  if (!test::has_gpu()) GTEST_SKIP() << "no GPU";
  std::vector<Tensor> tensors;
  uint32_t seed = 1;
  for (const int64_t count : {0, 1, 5, 255, 256, 257, 1023, 4096, 16384, 16385, 50001}) {
    for (const FloatType type : {FloatType::kF32, FloatType::kBF16, FloatType::kF16}) {
      for (int misaligned = 0; misaligned < 2; ++misaligned) {
        ++seed;
        tensors.push_back(make(type, count, seed, seed % 5 == 0 ? 0 : 2e-3, 1 + seed % 700));
      }
    }
  }
  expect_gpu_equals_ref(tensors, {});
  GradControl control;
  control.clip = 0.3f;
  expect_gpu_equals_ref(tensors, control);
}

TEST(AdamW8Gpu, FoundInfKeepsEveryBit) {
  if (!test::has_gpu()) GTEST_SKIP() << "no GPU";
  expect_found_inf_keeps({make(FloatType::kF32, 20000, 1)},
                         [](auto& tensors, const auto& control) { run_gpu(tensors, control); });
}

#endif

}  // namespace
}  // namespace lft::adamw8_test
