// Tiled attention against its definition in double, within the accumulated error of its BF16
// roundings.
#include <ATen/record_function.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>

#include "models/ops/attention/attention.h"
#include "models/ops/attention/tiled_attention.h"
#include "models/step_support.h"
#include "models/tiny.h"

namespace lft::test::attention_test {
namespace {

struct Shape {
  int64_t batch, heads, queries, keys, width;
  bool causal;
};

/// q, k, v or a gradient in BF16, with the memory layout [b, t, h, e] of a layer.
at::Tensor operand(const char* name, int64_t batch, int64_t heads, int64_t positions,
                   int64_t width) {
  const std::vector<int64_t> sizes = {batch, positions, heads, width};
  return (fill_by_hash(name, {c10::multiply_integers(sizes)}).reshape(sizes) * 4)
      .to(at::kBFloat16)
      .transpose(1, 2);
}

struct Operands {
  at::Tensor q, k, v, dy;
  explicit Operands(const Shape& s)
      : q(operand("q", s.batch, s.heads, s.queries, s.width)),
        k(operand("k", s.batch, s.heads, s.keys, s.width)),
        v(operand("v", s.batch, s.heads, s.keys, s.width)),
        dy(operand("dy", s.batch, s.heads, s.queries, s.width)) {}
};

struct Values {
  at::Tensor out, dq, dk, dv;
};

Values tiled(const Operands& x, bool causal) {
  std::vector<at::Tensor> leaves;
  for (const at::Tensor& each : {x.q, x.k, x.v})
    leaves.push_back(each.detach().set_requires_grad(true));
  const at::Tensor out = tiled_attention(leaves[0], leaves[1], leaves[2], causal);
  const auto gradients = torch::autograd::grad({out}, leaves, {x.dy});
  return {out.detach(), gradients[0], gradients[1], gradients[2]};
}

/// The values in double, each with its error bound: u times each rounded value, propagated to
/// the result. u is BF16's unit roundoff; 1 % more of it covers the float32 sums and
/// exp.
struct Definition {
  Values value, bound;

  Definition(const Operands& x, bool causal) {
    const double u = 0x1p-8 * 1.01, scale = 1 / std::sqrt(static_cast<double>(x.q.size(3)));
    const at::Tensor q = x.q.to(at::kDouble), k = x.k.to(at::kDouble), v = x.v.to(at::kDouble),
                     dy = x.dy.to(at::kDouble);
    at::Tensor scores = at::matmul(q, k.transpose(2, 3)) * scale;
    if (causal)
      scores =
          scores.masked_fill(at::ones(scores.sizes(), at::kBool).tril().logical_not(), -INFINITY);
    const at::Tensor p = at::softmax(scores, -1), out = at::matmul(p, v),
                     delta = (dy * out).sum(-1, true);
    const at::Tensor ds = p * (at::matmul(dy, v.transpose(2, 3)) - delta) * scale;
    const auto turned = [](const at::Tensor& m) { return m.transpose(2, 3); };
    value = {out, at::matmul(ds, k), at::matmul(turned(ds), q), at::matmul(turned(p), dy)};
    // p and out are rounded, and delta comes from the rounded out; so is ds, and every result.
    const at::Tensor p_error = u * p, out_error = u * out.abs() + at::matmul(p_error, v.abs());
    const at::Tensor ds_error = u * ds.abs() + scale * p * (dy.abs() * out_error).sum(-1, true);
    bound = {out_error, u * value.dq.abs() + at::matmul(ds_error, k.abs()),
             u * value.dk.abs() + at::matmul(turned(ds_error), q.abs()),
             u * value.dv.abs() + at::matmul(turned(p_error), dy.abs())};
  }
};

/// The largest error in units of its bound.
double worst(const at::Tensor& got, const at::Tensor& want, const at::Tensor& bound) {
  return ((got.to(at::kDouble) - want).abs() / (bound + 1e-30)).max().item<double>();
}

bool has_tiles() {
  const at::Tensor x = at::zeros({1, 1, 1, 2}, at::kBFloat16);
  return fits_tiles(x, x, true);
}

class TiledAttention : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!has_tiles()) GTEST_SKIP() << "this processor has AMX, or no avx512_bf16";
  }
};

TEST_F(TiledAttention, RoundsOnceWhereTheDefinitionDoesNot) {
  const std::vector<Shape> shapes = {
      {1, 2, 64, 64, 64, true},  {2, 3, 130, 130, 72, true},  {1, 2, 257, 257, 16, false},
      {2, 2, 5, 5, 10, true},    {1, 1, 1, 1, 2, true},       {1, 2, 70, 200, 8, false},
      {1, 2, 200, 70, 8, false}, {1, 2, 704, 704, 128, true}, {1, 1, 129, 129, 6, false}};
  for (const Shape& shape : shapes) {
    const Operands x(shape);
    const Values got = tiled(x, shape.causal);
    const Definition definition(x, shape.causal);
    const std::string where = std::to_string(shape.queries) + " queries, " +
                              std::to_string(shape.keys) + " keys of " +
                              std::to_string(shape.width);
    EXPECT_LE(worst(got.out, definition.value.out, definition.bound.out), 1) << where;
    EXPECT_LE(worst(got.dq, definition.value.dq, definition.bound.dq), 1) << where;
    EXPECT_LE(worst(got.dk, definition.value.dk, definition.bound.dk), 1) << where;
    EXPECT_LE(worst(got.dv, definition.value.dv, definition.bound.dv), 1) << where;
  }
}

TEST_F(TiledAttention, NoQuerySeesALaterKey) {
  const Operands x({1, 2, 150, 150, 8, true});
  const Values before = tiled(x, true);
  x.k.narrow(2, 100, 50).fill_(7);
  x.v.narrow(2, 100, 50).fill_(-3);
  x.dy.narrow(2, 100, 50).zero_();
  const Values after = tiled(x, true);
  EXPECT_TRUE(at::equal(before.out.narrow(2, 0, 100), after.out.narrow(2, 0, 100)));
  EXPECT_EQ(after.dk.narrow(2, 100, 50).abs().max().item<double>(), 0);
  EXPECT_EQ(after.dv.narrow(2, 100, 50).abs().max().item<double>(), 0);
}

TEST_F(TiledAttention, IsTheSameForEveryNumberOfThreadsAndLayout) {
  Operands x({2, 3, 100, 100, 16, true});
  const Values one = [&] {
    const Threads threads(1);
    return tiled(x, true);
  }();
  for (at::Tensor* each : {&x.q, &x.k, &x.v, &x.dy})
    *each = each->transpose(2, 3).contiguous().transpose(2, 3);  // rows that are not dense
  const Threads threads(2);
  const Values two = tiled(x, true);
  EXPECT_TRUE(at::equal(one.out, two.out) && at::equal(one.dq, two.dq) &&
              at::equal(one.dk, two.dk) && at::equal(one.dv, two.dv));
}

TEST_F(TiledAttention, ANonFiniteScoreIsSeen) {
  const Operands x({1, 1, 70, 70, 8, true});
  x.q[0][0][3][0] = NAN;
  x.q[0][0][66].fill_(3e38);
  x.k[0][0][66].fill_(3e38);
  const Values got = tiled(x, true);
  EXPECT_TRUE(got.out[0][0][3].isnan().all().item<bool>());
  EXPECT_TRUE(got.out[0][0][66].isnan().all().item<bool>());
  EXPECT_TRUE(got.out[0][0].narrow(0, 4, 60).isfinite().all().item<bool>());
  EXPECT_FALSE(got.dk.isfinite().all().item<bool>());
}

/// The attention ops that run within attention() in BF16.
std::vector<std::string> attention_ops(const at::Tensor& mask) {
  static thread_local std::vector<std::string>* names = nullptr;
  std::vector<std::string> found;
  names = &found;
  const auto start = [](const at::RecordFunction& fn) -> std::unique_ptr<at::ObserverContext> {
    if (std::string_view(fn.name()).find("attention") != std::string_view::npos)
      names->emplace_back(fn.name());
    return nullptr;
  };
  const at::CallbackHandle handle = at::addThreadLocalCallback(at::RecordFunctionCallback(start));
  const Operands x({1, 2, 10, 10, 8, true});
  attention(x.q, x.k, x.v, mask, /*causal=*/!mask.defined());
  at::removeCallback(handle);
  return found;
}

TEST_F(TiledAttention, IsWhatAttentionTakesWithoutAMask) {
  EXPECT_EQ(attention_ops(at::Tensor()),
            std::vector<std::string>{"lft::scaled_dot_product_attention"});
  EXPECT_EQ(attention_ops(at::ones({1, 1, 10, 10}, at::kBool)).front(),
            "aten::scaled_dot_product_attention");
}

}  // namespace
}  // namespace lft::test::attention_test
