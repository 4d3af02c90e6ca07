// The policy table against torch's own lists, and each op and module of a model against it, in all
// three compute dtypes.
#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>

#include <map>
#include <set>

#include "models/base/call.h"
#include "models/layers/norms.h"
#include "models/ops/attention/attention.h"
#include "models/ops/core/precision.h"
#include "models/ops/elementwise/activation.h"
#include "models/ops/elementwise/dropout.h"
#include "models/ops/elementwise/rms_norm.h"
#include "models/ops/elementwise/rope.h"
#include "models/ops/elementwise/token_logprobs.h"
#include "models/ops/linear/linear.h"
#include "models/tiny.h"

namespace lft::test::precision_test {
namespace {

constexpr at::ScalarType kLowTypes[] = {at::kBFloat16, at::kHalf};

/// The names in torch's CUDA lists: ops that autocast runs in low precision, and in float32.
#define LFT_NAME(op, ...) #op,
const std::set<std::string> kTorchLow = {AT_FORALL_LOWER_PRECISION_FP(LFT_NAME)};
const std::set<std::string> kTorchFloat32 = {AT_FORALL_FP32(LFT_NAME)
                                                 AT_FORALL_FP32_SET_OPT_DTYPE(LFT_NAME)};
#undef LFT_NAME

TEST(PrecisionPolicy, IsTorchsListsForCuda) {
  ASSERT_GT(kTorchLow.size(), 20u);
  for (size_t i = 0; i < kPrecisionPolicy.size(); ++i) {
    const OpPolicy& row = kPrecisionPolicy[i];
    EXPECT_EQ(static_cast<size_t>(row.op), i)
        << row.name << ": op_dtype() looks a row up by its place";
    EXPECT_EQ(kTorchLow.count(row.torch) > 0, row.runs_in == RunsIn::kCompute) << row.name;
    EXPECT_EQ(kTorchFloat32.count(row.torch) > 0, row.runs_in == RunsIn::kFloat32) << row.name;
  }
  for (const char* part : {"pow", "rsqrt"})
    EXPECT_EQ(kTorchFloat32.count(part), 1u) << "what RMSNorm is made of";
}

RunsIn policy(Op op) { return kPrecisionPolicy[static_cast<size_t>(op)].runs_in; }

/// Uniform in [-2, 2), of `type`.
at::Tensor random(at::IntArrayRef shape, const char* name, at::ScalarType type = at::kFloat) {
  return (fill_by_hash(name, {c10::multiply_integers(shape)}).reshape(shape) * 4).to(type);
}

TEST(PrecisionPolicy, ProductsTakeTheComputeDtypeAndAccumulateInFloat32) {
  EXPECT_EQ(policy(Op::kLinear), RunsIn::kCompute);
  EXPECT_EQ(policy(Op::kAttention), RunsIn::kCompute);
  for (const at::ScalarType type : kLowTypes) {
    const ComputeDtypeGuard guard(type);
    const at::Tensor x = random({7, 512}, "x"), w = random({5, 512}, "w");
    const at::Tensor y = linear(x, w, at::Tensor());
    EXPECT_EQ(y.scalar_type(), type);
    // Sums of 512 exact products of rounded operands: in float32 they err by far less than one
    // rounding of the result.
    const at::Tensor exact = at::mm(x.to(type).to(at::kDouble), w.to(type).to(at::kDouble).t());
    EXPECT_TRUE(((y.to(at::kDouble) - exact).abs() <=
                 exact.abs() * (type == at::kHalf ? 0x1p-11 : 0x1p-8) * 1.01 + 1e-4)
                    .all()
                    .item<bool>());

    const at::Tensor q = random({1, 2, 40, 8}, "q", type), k = random({1, 2, 40, 8}, "k", type),
                     v = random({1, 2, 40, 8}, "v", type);
    const at::Tensor mixed = attention(q, k, v, at::Tensor(), /*causal=*/true);
    EXPECT_EQ(mixed.scalar_type(), type);
    const at::Tensor wide = attention(q.to(at::kFloat), k.to(at::kFloat), v.to(at::kFloat),
                                      at::Tensor(), /*causal=*/true);
    EXPECT_LT(relative_error(mixed, wide),
              type == at::kHalf ? 0x1p-11 : 0x1p-7);  // BF16 rounds its probabilities too
  }
}

TEST(PrecisionPolicy, NormsSoftmaxAndLossAreFloat32) {
  for (const Op op : {Op::kRmsNorm, Op::kLayerNorm, Op::kLogSoftmax, Op::kSum})
    EXPECT_EQ(policy(op), RunsIn::kFloat32);
  for (const at::ScalarType type : kLowTypes) {
    const at::Tensor x = random({3, 64}, "x", type) * 500;  // the squares are beyond 65,504
    const at::Tensor w = random({64}, "w", type), b = random({64}, "b", type),
                     wide = x.to(at::kFloat);
    const double unit = type == at::kHalf ? 0x1p-11 : 0x1p-8;
    const ComputeDtypeGuard guard(type);

    const at::Tensor rms = rms_norm(x, w, 1e-6);
    EXPECT_EQ(rms.scalar_type(), type);
    EXPECT_LT(relative_error(
                  rms, wide * at::rsqrt(wide.square().mean(-1, true) + 1e-6) * w.to(at::kFloat)),
              unit);
    // Over a float32 stream: enabled in BF16, but in float32 where gradients could overflow.
    EXPECT_EQ(rms_norm(wide, w, 1e-6).scalar_type(), type == at::kHalf ? at::kFloat : type);

    LayerNorm norm(64, 1e-5, at::TensorOptions().dtype(type));
    norm->weight.copy_(w);
    norm->bias.copy_(b);
    const at::Tensor layer = call("norm", norm, x),
                     want = at::layer_norm(wide, {64}, w.to(at::kFloat), b.to(at::kFloat), 1e-5);
    EXPECT_EQ(layer.scalar_type(), type == at::kHalf ? at::kFloat : type);
    EXPECT_LT(relative_error(layer, want), unit);

    const at::Tensor logprobs = token_logprobs(
        random({2, 8}, "h", type), random({100, 8}, "head", type), at::tensor({3, 99}, at::kLong));
    EXPECT_EQ(logprobs.scalar_type(), at::kFloat);
    EXPECT_FALSE(at::equal(logprobs, logprobs.to(type).to(at::kFloat)))
        << "a rounded result is no float32 one";
  }
}

TEST(PrecisionPolicy, OtherOpsKeepTheWidestOfTheirOperands) {
  for (const Op op : {Op::kEmbedding, Op::kActivation, Op::kRope, Op::kDropout, Op::kAdd, Op::kCat})
    EXPECT_EQ(policy(op), RunsIn::kWidest);
  const DropoutGuard position({1, 1, 0});
  const DropoutMask mask = dropout_mask(0.5, "here");
  const at::Tensor angle = random({1, 4, 3}, "angle"), ids = at::tensor({1, 0}, at::kLong);
  for (const at::ScalarType type : kLowTypes) {
    const ComputeDtypeGuard guard(type);
    for (const at::ScalarType in : {at::kFloat, at::kBFloat16, at::kHalf}) {
      for (const char* name : {"gelu", "quick_gelu", "relu", "silu"})
        EXPECT_EQ(activation(name, random({4}, "x", in)).scalar_type(), in);
      EXPECT_EQ(gated(random({4}, "x", in), random({4}, "u", in)).scalar_type(), in);
      EXPECT_EQ(rope(random({2, 4, 1, 6}, "x", in), angle.cos(), angle.sin()).scalar_type(), in);
      EXPECT_EQ(dropout(random({16}, "x", in), mask).scalar_type(), in);
      Embedding table(3, 4, at::TensorOptions().dtype(in));
      EXPECT_EQ(call("table", table, ids).scalar_type(), in);
      const ComputeDtypeGuard wide(at::kFloat);
      EXPECT_EQ(call("table", table, ids).scalar_type(), at::kFloat) << "float32 all the way";
    }
  }
}

/// The dtype of every module's output, by its path.
class OutputTypes : public CallObserver {
 public:
  void after(const std::string& path, const torch::nn::Module& module,
             const std::vector<at::Tensor>& outputs) override {
    for (const at::Tensor& output : outputs) seen[path] = output.scalar_type();
    kinds[path] = module.name();
  }
  std::map<std::string, at::ScalarType> seen;
  std::map<std::string, std::string> kinds;
};

OutputTypes outputs_of(at::ScalarType stored, at::ScalarType compute) {
  const at::NoGradGuard no_grad;
  Model model = make_llava(tiny_config(), stored);
  const ComputeDtypeGuard guard(compute);
  OutputTypes types;
  const ObserveCalls observe(types);
  model->supervised_logprobs(tiny_batch(tiny_config()));
  return types;
}

bool ends_with_any(const std::string& text, std::initializer_list<const char*> ends) {
  for (const char* end : ends) {
    if (text.ends_with(end)) return true;
  }
  return false;
}

/// The dtype of a residual stream. The first LayerNorm sets that of the vision tower.
at::ScalarType stream_of(const std::string& path, at::ScalarType stored, at::ScalarType compute) {
  if (path.starts_with("vision_tower") && !path.ends_with("embeddings"))
    return compute == at::kBFloat16 ? compute : at::kFloat;
  return stored;
}

/// Output of transformers' modules under CUDA autocast, except BF16's norms: these round
/// immediately what the following linears would round.
at::ScalarType expected_output(const std::string& path, const std::string& kind,
                               at::ScalarType stored, at::ScalarType compute) {
  if (path == "language_model") return at::kFloat;  // log-probabilities
  if (kind == "Linear" ||
      ends_with_any(path, {"self_attn", "mlp", "patch_embedding", "multi_modal_projector"}))
    return compute;
  const bool is_norm = kind == "RmsNorm" || kind == "LayerNorm" || path == "language_model.model";
  if (is_norm && compute == at::kBFloat16) return compute;
  return kind == "LayerNorm" ? at::kFloat : stream_of(path, stored, compute);
}

TEST(PrecisionPolicy, EveryModulesOutputHasItsDtype) {
  for (const at::ScalarType compute : {at::kFloat, at::kBFloat16, at::kHalf}) {
    for (const at::ScalarType stored : {at::kFloat, compute}) {
      const OutputTypes types = outputs_of(stored, compute);
      EXPECT_GT(types.seen.size(), 50u);
      for (const auto& [path, type] : types.seen) {
        EXPECT_EQ(type, expected_output(path, types.kinds.at(path), stored, compute))
            << path << " of a base in " << stored << ", computed in " << compute;
      }
    }
  }
}

}  // namespace
}  // namespace lft::test::precision_test
