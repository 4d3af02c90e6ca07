// The layers' ops for which a device has its own kernel, against the same op in float32
// on the CPU, forward and backward.
#include "gpu/devices.h"
#include "models/ops/attention/attention.h"
#include "models/ops/attention/cudnn_attention.h"
#include "models/ops/elementwise/activation.h"
#include "models/ops/elementwise/dropout.h"
#include "models/ops/elementwise/rms_norm.h"
#include "models/ops/elementwise/rope.h"
#include "models/ops/elementwise/token_logprobs.h"
#include "models/ops/recurrent/causal_conv.h"
#include "models/ops/recurrent/gated_delta.h"
#include "models/ops/recurrent/gated_norm.h"
#include "models/ops/weight/nf4.h"

namespace lft::test::ops_test {
using namespace lft::ops;
namespace {

using Shape = std::vector<int64_t>;

std::string text(const Shape& shape) { return c10::str(at::IntArrayRef(shape)); }

class DeviceOps : public OnDevice {};
LFT_ON_EACH_DEVICE(DeviceOps);

TEST_P(DeviceOps, RmsNorm) {
  for (const Shape& shape : {Shape{1, 1}, Shape{1, 7}, Shape{5, 33}, Shape{2, 3, 512},
                             Shape{129, 1000}, Shape{37, 4096}, Shape{3, 11008}}) {
    // The gradient of a single column is eps times the rest: with a small eps only the rounding
    // residue of two equal terms remains.
    const double eps = shape.back() == 1 ? 1 : 1e-5;
    const auto op = [&](const std::vector<at::Tensor>& t, at::Device) {
      return rms_norm(t[0], t[1], eps);
    };
    const double terms =
        static_cast<double>(shape.back()) + 8;  // a reciprocal root is off by two units
    expect_as_on_cpu(device(), {normal(shape, 1), normal({shape.back()}, 2) + 1}, 1, 2, terms,
                     text(shape), op);
  }
}

/// Returns both results, so that the backward pass adds the gradients of the sum and the norm.
TEST_P(DeviceOps, RmsNormOfAResidualSum) {
  for (const Shape& shape : {Shape{1, 1}, Shape{5, 33}, Shape{2, 3, 512}, Shape{37, 4096}}) {
    const auto op = [](const std::vector<at::Tensor>& t, at::Device) {
      const Normed normed = add_rms_norm(t[0], t[1], t[2], 1e-5);
      return at::cat({normed.sum.to(at::kFloat), normed.y.to(at::kFloat)});
    };
    expect_as_on_cpu(device(), {normal(shape, 1), normal(shape, 3), normal({shape.back()}, 2) + 1},
                     2, 4, static_cast<double>(shape.back()), text(shape), op);
  }
}

TEST_P(DeviceOps, Rope) {
  for (const Shape& shape :
       {Shape{1, 1, 1, 2}, Shape{2, 5, 3, 10}, Shape{1, 129, 4, 128}, Shape{3, 17, 2, 64}}) {
    for (const int64_t batches : {int64_t{1}, shape[0]}) {
      const at::Tensor angle = normal({batches, shape[1], shape[3] / 2}, 3) * 3;
      const auto op = [&](const std::vector<at::Tensor>& t, at::Device where) {
        return rope(t[0], angle.cos().to(where), angle.sin().to(where));
      };
      expect_as_on_cpu(device(), {normal(shape, 4)}, 1, 1, 4, text(shape), op);
    }
  }
}

TEST_P(DeviceOps, Gated) {
  for (const Gate kind : {Gate::kSilu, Gate::kGelu}) {
    for (const Shape& shape : {Shape{1, 1}, Shape{7, 129}, Shape{2, 3, 11008}, Shape{1000, 1003}}) {
      const auto op = [&](const std::vector<at::Tensor>& t, at::Device) {
        return gated(t[0], t[1], kind);
      };
      expect_as_on_cpu(device(), {normal(shape, 5) * 3, normal(shape, 6)}, 2, 2, 64, text(shape),
                       op);  // exponentials: 2 + |gate| units
    }
  }
}

/// One fused pass, where a device has it, gives the same bits as two.
TEST_P(DeviceOps, SwigluWithItsDropout) {
  const DropoutGuard guard({.seed = 7, .step = 3, .micro_batch = 1});
  const DropoutMask mask = dropout_mask(0.3, "layer");
  for (const Shape& shape : {Shape{1, 1}, Shape{7, 129}, Shape{2, 3, 11008}}) {
    for (const at::ScalarType type : kTypes) {
      const at::Tensor gate = (normal(shape, 5) * 3).to(type).to(device());
      const at::Tensor up = normal(shape, 6).to(type).to(device());
      const at::Tensor y = gated_values(gate, up), dropped = dropout(y, mask);
      for (const bool whole : {false, true}) {
        const DroppedGated got = gated_dropout(gate, up, mask, whole);
        EXPECT_TRUE(at::equal(got.dropped, dropped)) << text(shape);
        EXPECT_EQ(got.y.defined(), whole);
        EXPECT_TRUE(!whole || at::equal(got.y, y)) << text(shape);
      }
    }
  }
}

TEST_P(DeviceOps, QuickGelu) {
  for (const Shape& shape : {Shape{1}, Shape{7, 129}, Shape{577, 1024}}) {
    const auto op = [](const std::vector<at::Tensor>& t, at::Device) { return quick_gelu(t[0]); };
    expect_as_on_cpu(device(), {normal(shape, 7) * 3}, 1, 3, 16, text(shape), op);
  }
}

/// Logits near 1 have an error of one rounding, and so do the probabilities; the gradient is
/// rounded as logits and as a product.
TEST_P(DeviceOps, TokenLogprobs) {
  for (const Shape& shape :
       {Shape{1, 8, 11}, Shape{5, 33, 97}, Shape{300, 64, 32064}, Shape{1100, 16, 16384}}) {
    const at::Tensor hidden = normal({shape[0], shape[1]}, 8),
                     weight = normal({shape[2], shape[1]}, 9) / std::sqrt(double(shape[1]));
    const at::Tensor targets = (at::arange(shape[0], at::kLong) * 7919).remainder(shape[2]);
    for (const size_t trained : {1, 2}) {
      if (trained == 2 && shape[2] > 100) continue;
      const auto op = [&](const std::vector<at::Tensor>& t, at::Device where) {
        return token_logprobs(t[0], t[1], targets.to(where));
      };
      expect_as_on_cpu(device(), {hidden, weight}, trained, 6, static_cast<double>(shape[2]),
                       text(shape), op);
    }
  }
}

TEST_P(DeviceOps, DropoutHasTheSameMaskBitForBit) {
  const DropoutGuard guard({.seed = 7, .step = 3, .micro_batch = 1});
  const DropoutMask mask = dropout_mask(0.3, "layer");
  for (const Shape& shape : {Shape{1}, Shape{7}, Shape{8}, Shape{3, 129}, Shape{1000003}}) {
    for (const at::ScalarType type : kTypes) {
      const at::Tensor x = normal(shape, 10).to(type), y = normal(shape, 11).to(type);
      EXPECT_TRUE(at::equal(dropout(x.to(device()), mask).cpu(), dropout(x, mask))) << text(shape);
      at::Tensor got = y.to(device(), /*non_blocking=*/false, /*copy=*/true),
                 want = y.to(at::kDouble);
      add_dropout(got, x.to(device()), mask);
      want += dropout(x.to(at::kFloat), mask).to(at::kDouble);
      expect_close(got, want, tolerance(type, 2, 1), text(shape));
    }
  }
}

TEST_P(DeviceOps, Nf4DequantisesToTheSameBits) {
  for (const auto& [out, in] : std::vector<std::pair<int64_t, int64_t>>{
           {1, 1}, {3, 5}, {16, 64}, {70, 130}, {1024, 1024}}) {
    const at::Tensor dense = normal({out, in}, 12) * 0.05;
    const auto here = quantize_nf4(dense, at::kCPU), there = quantize_nf4(dense, device());
    for (const at::ScalarType type : kTypes)
      EXPECT_TRUE(at::equal(there->dense(type).cpu(), here->dense(type))) << out;
  }
}

PackedSequences packed(const Shape& lengths, at::Device where) {
  PackedSequences sequences;
  sequences.starts = {0};
  for (const int64_t length : lengths) sequences.starts.push_back(sequences.starts.back() + length);
  if (!where.is_cpu())
    sequences.starts_s1 = at::tensor(sequences.starts, at::kLong).to(at::kInt).to(where);
  return sequences;
}

/// beta is a rounded sigmoid, and the gradients of q, k and v are rounded once.
TEST_P(DeviceOps, GatedDelta) {
  for (const Shape& lengths : {Shape{1}, Shape{3, 1, 70}, Shape{129, 64}}) {
    for (const Shape& of : {Shape{1, 2, 8, 5}, Shape{2, 4, 64, 48}, Shape{2, 2, 130, 6}}) {
      const int64_t t = packed(lengths, at::kCPU).starts.back();
      const auto op = [&](const std::vector<at::Tensor>& x, at::Device where) {
        return gated_delta_rule({x[0], x[1], x[2], -x[3].abs(), at::sigmoid(x[4])},
                                packed(lengths, where))
            .out_tne;
      };
      expect_as_on_cpu(
          device(),
          {normal({t, of[0], of[2]}, 19), normal({t, of[0], of[2]}, 20),
           normal({t, of[1], of[3]}, 21), normal({t, of[1]}, 22), normal({t, of[1]}, 23)},
          5, 6, 1 << 14, text(lengths) + text(of), op);
    }
  }
}

/// The states after sequences, and from them the next tokens.
TEST_P(DeviceOps, GatedDeltaStates) {
  const at::Tensor q = normal({80, 2, 16}, 19), k = normal({80, 2, 16}, 20),
                   v = normal({80, 4, 8}, 21), g = -normal({80, 4}, 22).abs(),
                   beta = at::sigmoid(normal({80, 4}, 23)), states = normal({2, 4, 16, 8}, 24);
  const auto run = [&](at::Device where) {
    return gated_delta_rule({q.to(where), k.to(where), v.to(where), g.to(where), beta.to(where)},
                            packed({79, 1}, where), states.to(where), /*final_state=*/true);
  };
  const DeltaResult got = run(device()), want = run(at::kCPU);
  expect_close(got.out_tne, want.out_tne, 1e-5, "out");
  expect_close(got.state_snde, want.state_snde, 1e-5, "states");
}

TEST_P(DeviceOps, CausalConv) {
  const Shape lengths = {5, 1, 40};
  for (const int64_t channels : {3, 300}) {
    const auto op = [&](const std::vector<at::Tensor>& x, at::Device where) {
      return causal_conv_silu(x[0], x[1], packed(lengths, where)).out_tc;
    };
    expect_as_on_cpu(device(), {normal({46, channels}, 25), normal({channels, 4}, 26)}, 2, 6, 64,
                     std::to_string(channels) + " channels", op);
  }
}

TEST_P(DeviceOps, GatedNorm) {
  for (const Shape& shape : {Shape{5, 33}, Shape{2, 3, 128}}) {
    const auto op = [](const std::vector<at::Tensor>& x, at::Device) {
      return gated_rms_norm(x[0], x[1], x[2], 1e-6);
    };
    expect_as_on_cpu(device(), {normal(shape, 27), normal(shape, 28), normal({shape.back()}, 29)},
                     3, 6, static_cast<double>(shape.back()), text(shape), op);
  }
}

/// Probabilities are rounded before they weight the values, and again in the backward pass.
void expect_packed_attention_as_on_cpu(at::Device device) {
  for (const Shape& lengths : {Shape{2}, Shape{3, 1, 6, 2}, Shape{130, 1, 257, 64}}) {
    for (const auto& [heads, kv, size] : std::vector<std::tuple<int64_t, int64_t, int64_t>>{
             {4, 4, 8}, {4, 2, 64}, {2, 1, 128}, {2, 2, 20}}) {
      const int64_t total = packed(lengths, at::kCPU).starts.back();
      const auto op = [&](const std::vector<at::Tensor>& t, at::Device where) {
        return packed_attention(t[0], t[1], t[2], packed(lengths, where));
      };
      expect_as_on_cpu(device,
                       {normal({total, heads, size}, 13), normal({total, kv, size}, 14),
                        normal({total, kv, size}, 15)},
                       3, 6, 256, text(lengths) + " heads of " + std::to_string(size), op);
    }
  }
}

TEST_P(DeviceOps, PackedAttention) { expect_packed_attention_as_on_cpu(device()); }

/// cuDNN attention, on GPUs where it is faster.
TEST_P(DeviceOps, PackedAttentionThatNeedNotRepeatItsBits) {
  at::globalContext().setDeterministicAlgorithms(false, /*warn_only=*/false);
  expect_packed_attention_as_on_cpu(device());
  if (device().is_cuda() && device_facts(device()).capability >= 90) {
    const at::Tensor x = normal({193, 2, 128}, 16).to(at::kBFloat16).to(device());
    EXPECT_TRUE(cudnn_attention(x, x, x, packed({130, 63}, device()), true).has_value());
  }
  make_deterministic(true);
}

TEST_P(DeviceOps, AttentionWithAMaskAndWithout) {
  for (const Shape& shape : {Shape{1, 1, 2, 8}, Shape{2, 4, 17, 16},
                             Shape{3, 2, 577, 64}}) {  // with a single key, dq and dk are noise
    const at::Tensor seen = at::arange(shape[2]).view({1, 1, 1, -1}) <
                            at::arange(1, shape[0] + 1).view({-1, 1, 1, 1}) * 7;
    for (const int mode : {0, 1, 2}) {
      const auto op = [&](const std::vector<at::Tensor>& t, at::Device where) {
        return attention(t[0], t[1], t[2], mode == 1 ? seen.to(where) : at::Tensor(), mode == 2);
      };
      expect_as_on_cpu(device(), {normal(shape, 16), normal(shape, 17), normal(shape, 18)}, 3, 6,
                       577, text(shape) + c10::str(" mode ", mode), op);
    }
  }
}

}  // namespace
}  // namespace lft::test::ops_test
