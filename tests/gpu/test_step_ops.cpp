// The linear layer and the optimizer's ops on a device against the same on the CPU.
#include <limits>

#include "gpu/devices.h"
#include "models/ops/elementwise/dropout.h"
#include "models/ops/linear/linear.h"
#include "models/ops/linear/shared_input.h"
#include "models/ops/update/adamw.h"
#include "models/ops/update/adamw8.h"
#include "models/ops/update/grad_stats.h"
#include "models/ops/weight/fp8.h"

namespace lft::test::step_ops_test {
using namespace lft::ops;
using namespace lft::train;
namespace {

class DeviceLinear : public OnDevice {};
LFT_ON_EACH_DEVICE(DeviceLinear);

struct Layer {
  int64_t rows, in, out, rank;
};
constexpr Layer kLayers[] = {
    {1, 1, 1, 1}, {7, 13, 9, 3}, {64, 128, 48, 16}, {515, 256, 384, 8}, {1, 1024, 512, 128}};

/// Base product, h, low-rank product and their sum are rounded forward; as many backward, and the
/// masters' gradients once more.
TEST_P(DeviceLinear, AloneAndWithALowRankUpdate) {
  for (const Layer& layer : kLayers) {
    const at::Tensor x = normal({layer.rows, layer.in}, 1), up = normal({layer.rows, layer.in}, 2);
    const at::Tensor a = normal({layer.rank, layer.in}, 3) / std::sqrt(double(layer.in)),
                     b = normal({layer.out, layer.rank}, 4);
    const at::Tensor w = normal({layer.out, layer.in}, 5) / std::sqrt(double(layer.in)),
                     bias = normal({layer.out}, 6);
    for (const bool gated : {false, true}) {
      for (const bool adapted : {false, true}) {
        for (const double p : {0.0, 0.3}) {
          if (!adapted && p > 0) continue;
          const auto op = [&](const std::vector<at::Tensor>& t, at::Device where) {
            const DropoutGuard position({.seed = 3, .step = 1, .micro_batch = 0});
            LowRank update;
            if (adapted)
              update = {t[2].to(at::kFloat), t[3].to(at::kFloat), 1.75, dropout_mask(p, "layer")};
            return gated ? linear_gated(t[0], t[1], t[4], t[5], update)
                         : linear(t[0], t[4], t[5], update);
          };
          const size_t trained = adapted ? 4 : gated ? 2 : 1;
          if (adapted && !gated) {
            const auto plain = [&](const std::vector<at::Tensor>& t, at::Device where) {
              return op({t[0], t[0], t[1], t[2], t[3], t[4]}, where);
            };
            expect_as_on_cpu(device(), {x, a, b, w, bias}, 3, 8, double(layer.in),
                             c10::str(layer.in, " p ", p), plain);
          } else {
            expect_as_on_cpu(device(), {x, up, a, b, w, bias}, trained, 8, double(layer.in),
                             c10::str(layer.in, " gated ", gated, " p ", p), op);
          }
        }
      }
    }
  }
}

/// As in q, k and v: one norm, three layers with separate updates, one gradient of x.
TEST_P(DeviceLinear, ThreeOfOneNormedInput) {
  for (const int64_t rows : {1, 33, 515}) {
    constexpr int64_t kIn = 256, kRank = 8;
    std::vector<at::Tensor> values = {normal({rows, kIn}, 1)};
    for (const int64_t out : {256, 64, 64}) {
      values.push_back(normal({kRank, kIn}, 3) / 16);
      values.push_back(normal({out, kRank}, 4));
    }
    for (const int64_t out : {256, 64, 64}) values.push_back(normal({out, kIn}, 5) / 16);
    values.push_back(normal({kIn}, 6) + 1);
    const auto op = [](const std::vector<at::Tensor>& t, at::Device) {
      std::vector<LowRank> updates;
      std::vector<at::Tensor> out;
      for (const size_t layer : {0, 1, 2}) {
        updates.push_back(
            {t[1 + 2 * layer].to(at::kFloat), t[2 + 2 * layer].to(at::kFloat), 1.5, {}});
      }
      const at::Tensor none;
      const Normed normed = add_rms_norm(t[0], none, t[10], 1e-5);
      const at::Tensor y =
          normed.y.to(compute_dtype());  // under FP16 a norm keeps the dtype of its input
      SharedInput input(y.is_same(normed.y) ? normed : Normed(y), updates);
      for (const size_t layer : {0, 1, 2}) {
        out.push_back(
            input.linear(static_cast<int64_t>(layer), t[7 + layer], none, updates[layer]));
      }
      return at::cat(out, -1);
    };
    expect_as_on_cpu(device(), values, 7, 10, kIn, std::to_string(rows), op);
  }
}

/// The same codes and, up to summation order, the same products; the tensor cores of some GPUs
/// keep 14 bits of a sum of FP8 products.
TEST_P(DeviceLinear, OverAnFp8AndAnNf4Base) {
  const at::Tensor w = normal({96, 160}, 1) / 12;
  const c10::intrusive_ptr<Fp8Storage> here = quantize_fp8(w, at::kCPU),
                                       there = quantize_fp8(w, device());
  const c10::intrusive_ptr<CodedWeight> codes_here = quantize(w, BaseStorage::kNf4, at::kCPU),
                                        codes_there = quantize(w, BaseStorage::kNf4, device());
  EXPECT_TRUE(at::equal(here->weight_oi.codes_mk.view(at::kByte),
                        there->weight_oi.codes_mk.cpu().view(at::kByte)));
  EXPECT_TRUE(at::equal(here->transposed_io.codes_mk.view(at::kByte),
                        there->transposed_io.codes_mk.cpu().view(at::kByte)));
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
    for (const int64_t rows : {1, 17, 300}) {
      const auto run = [&](at::Device where, const Weight& weight) {
        const ComputeDtypeGuard guard(type);
        const at::Tensor x = normal({rows, 160}, 2).to(type).to(where).set_requires_grad(true);
        const at::Tensor a = (normal({8, 160}, 3) / 12).to(where).set_requires_grad(true),
                         b = normal({96, 8}, 4).to(where).set_requires_grad(true);
        const at::Tensor y = linear(x, weight, at::Tensor(), {a, b, 0.5, {}});
        y.backward(normal({rows, 96}, 5).to(type).to(where));
        return std::vector<at::Tensor>{y.detach(), x.grad(), a.grad(), b.grad()};
      };
      const auto compare = [&](const Weight& device_weight, const Weight& cpu_weight,
                               double tolerated) {
        const std::vector<at::Tensor> got = run(device(), device_weight),
                                      want = run(at::kCPU, cpu_weight);
        for (size_t i = 0; i < got.size(); ++i)
          expect_close(got[i], want[i], tolerated, c10::str(type, " rows ", rows, " part ", i));
      };
      compare(Weight(c10::intrusive_ptr<CodedWeight>(there)),
              Weight(c10::intrusive_ptr<CodedWeight>(here)), 8 * rounding(type) + 0x1p-10);
      compare(codes_there, codes_here, 8 * rounding(type));
    }
  }
}

/// Bit for bit, except for the NaN payload: GPU products and conversions have their own NaN.
bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  const auto bits = [](const at::Tensor& x) { return x.masked_fill(x.isnan(), 0).view(at::kByte); };
  return at::equal(a.isnan(), b.isnan()) && at::equal(bits(a), bits(b));
}

class DeviceStep : public OnDevice {
 protected:
  /// Gradients of every type, odd and large sizes, one absent.
  static std::vector<at::Tensor> gradients(at::Device where) {
    std::vector<at::Tensor> out;
    uint64_t seed = 20;
    for (const int64_t count : {1, 3, 255, 256, 65536, 65537, 1000003}) {
      ++seed;
      out.push_back(normal({count}, seed).to(kTypes[seed % 3]).to(where));
    }
    out.insert(out.begin() + 2, at::Tensor());
    return out;
  }
  static std::vector<at::Tensor> numbers(const std::vector<at::Tensor>& gradients, uint64_t seed,
                                         at::Device where) {
    std::vector<at::Tensor> out;
    for (const at::Tensor& gradient : gradients)
      out.push_back(gradient.defined() ? normal(gradient.sizes(), ++seed).to(where) : at::Tensor());
    return out;
  }
};
LFT_ON_EACH_DEVICE(DeviceStep);

TEST_P(DeviceStep, GradientsAreUnscaledMeasuredAndJudgedAlike) {
  for (const double inv_scale : {1.0, 1.0 / 1024, 1.0 / 3}) {
    for (const float bad : {0.0f, std::numeric_limits<float>::infinity(), std::nanf("")}) {
      std::vector<at::Tensor> here = gradients(at::kCPU), there = gradients(device());
      if (bad != 0) {
        here[5].view(-1)[12345] = bad;
        there[5].view(-1)[12345] = bad;
      }
      const at::Tensor loss = at::tensor({2.5f});
      const GradStats want = read_stats(check_gradients(here, inv_scale, 1, loss));
      const GradStats got = read_stats(check_gradients(there, inv_scale, 1, loss.to(device())));
      EXPECT_EQ(got.found_inf, bad != 0);
      EXPECT_EQ(got.first_bad, bad != 0 ? 5 : -1);
      EXPECT_EQ(got.first_bad, want.first_bad);
      for (size_t i = 0; i < here.size(); ++i) {
        if (!here[i].defined()) continue;
        EXPECT_TRUE(same_bits(here[i], there[i].cpu())) << i;  // one product, rounded once
        if (!std::isfinite(want.norms[i])) continue;
        EXPECT_NEAR(got.norms[i], want.norms[i], 1e-12 * want.norms[i]) << i;  // sums in double
      }
      if (bad != 0) continue;
      EXPECT_NEAR(got.norm, want.norm, 1e-12 * want.norm);
      EXPECT_NEAR(got.clip, want.clip, 1e-7 * want.clip);  // float32
    }
  }
}

TEST_P(DeviceStep, AdamW) {
  const auto run = [&](at::Device where) {
    const std::vector<at::Tensor> params = numbers(gradients(at::kCPU), 40, where),
                                  first = numbers(gradients(at::kCPU), 50, where);
    std::vector<at::Tensor> second;
    for (const at::Tensor& each : first)
      second.push_back(each.defined() ? each.square() : at::Tensor());
    for (int64_t t = 1; t <= 3; ++t) {
      const std::vector<at::Tensor> grads = gradients(where);
      std::vector<AdamWTensor> tensors;
      for (size_t i = 0; i < grads.size(); ++i) {
        if (grads[i].defined())
          tensors.push_back({params[i], grads[i], first[i], second[i], i == 3 ? 1e-3 : 1e-2, t});
      }
      adamw_(tensors, {.betas = {0.9, 0.999}, .eps = 1e-8, .weight_decay = 0.1},
             check_gradients(grads, 1, 1, at::Tensor()));
    }
    return std::vector<std::vector<at::Tensor>>{params, first, second};
  };
  const auto want = run(at::kCPU), got = run(device());
  for (size_t part = 0; part < want.size(); ++part) {
    for (size_t i = 0; i < want[part].size(); ++i) {
      if (want[part][i].defined())
        expect_close(got[part][i], want[part][i], 16 * 0x1p-24,
                     c10::str("part ", part, " tensor ", i));
    }
  }
}

/// A moment near the middle between two codes may get the other one; it is one of 256 steps away,
/// and this is rare.
TEST_P(DeviceStep, AdamW8Bit) {
  const auto run = [&](at::Device where) {
    const std::vector<at::Tensor> params = numbers(gradients(at::kCPU), 60, where);
    std::vector<AdamW8Tensor> tensors;
    for (const at::Tensor& param : params) {
      if (!param.defined()) continue;
      const auto codes = [&] { return at::zeros(param.sizes(), param.options().dtype(at::kByte)); };
      const auto scales = [&] {
        return at::zeros({moment_blocks(param.numel())}, param.options());
      };
      tensors.push_back({param, at::Tensor(), codes(), codes(), scales(), scales(), 1e-2, 1});
    }
    for (int64_t t = 1; t <= 3; ++t) {
      const std::vector<at::Tensor> grads = gradients(where);
      size_t i = 0;
      for (const at::Tensor& grad : grads) {
        if (!grad.defined()) continue;
        tensors[i].grad = grad;
        tensors[i++].t = t;
      }
      adamw8_(tensors, {.betas = {0.9, 0.999}, .eps = 1e-8, .weight_decay = 0.1},
              check_gradients(grads, 1, 1, at::Tensor()));
    }
    return tensors;
  };
  const std::vector<AdamW8Tensor> want = run(at::kCPU), got = run(device());
  for (size_t i = 0; i < want.size(); ++i) {
    const auto other = [](const at::Tensor& a, const at::Tensor& b) {
      return (a.cpu() != b).to(at::kDouble).mean().item<double>();
    };
    EXPECT_LE(other(got[i].exp_avg, want[i].exp_avg), 1e-3) << i;
    EXPECT_LE(other(got[i].exp_avg_sq, want[i].exp_avg_sq), 1e-3) << i;
    expect_close(got[i].exp_avg_absmax, want[i].exp_avg_absmax, 1e-5, c10::str("scales ", i));
    expect_close(got[i].param, want[i].param, 1e-5, c10::str("param ", i));
  }
}

}  // namespace
}  // namespace lft::test::step_ops_test
