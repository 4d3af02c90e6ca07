// Non-causal attention within packed sequences, against its definition and autograd.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

#include "models/ops/attention/attention.h"

namespace lft::test::packed_whole_test {
namespace {

/// softmax(q k^T / sqrt(e)) v of each sequence, with repeated heads.
at::Tensor plain(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                 const std::vector<int64_t>& starts) {
  const int64_t repeat = q.size(1) / k.size(1);
  std::vector<at::Tensor> parts;
  for (size_t s = 0; s + 1 < starts.size(); ++s) {
    const auto part = [&](const at::Tensor& x, int64_t times) {
      return x.narrow(0, starts[s], starts[s + 1] - starts[s])
          .repeat_interleave(times, 1)
          .transpose(0, 1);
    };
    const at::Tensor scores = at::bmm(part(q, 1), part(k, repeat).transpose(1, 2)) /
                              std::sqrt(static_cast<double>(q.size(2)));
    parts.push_back(at::bmm(at::softmax(scores, -1), part(v, repeat)).transpose(0, 1));
  }
  return at::cat(parts, 0);
}

TEST(PackedWholeAttention, ValuesAndGradientsAreAutograds) {
  at::manual_seed(3);
  ops::PackedSequences sequences;
  sequences.starts = {0, 5, 6, 17, 20};
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    for (const int64_t kv_heads : {1, 2, 4}) {
      std::vector<at::Tensor> ours, theirs;
      for (const int64_t heads : {int64_t{4}, kv_heads, kv_heads}) {
        const at::Tensor x = at::randn({20, heads, 8}).to(type);
        ours.push_back(x.clone().requires_grad_(true));
        theirs.push_back(x.to(at::kDouble).requires_grad_(true));
      }
      const at::Tensor weights = at::randn({20, 4, 8}).to(type);
      const at::Tensor got = ops::packed_attention(ours[0], ours[1], ours[2], sequences, false),
                       want = plain(theirs[0], theirs[1], theirs[2], sequences.starts);
      got.backward(weights);
      want.backward(weights.to(at::kDouble));
      // Sums of at most 11 terms near 1, gradients summed over 4 heads; BF16 rounds to 2^-9.
      const double tolerance = type == at::kFloat ? 1e-5 : 11 * 4 * std::ldexp(1.0, -9);
      EXPECT_LT((got.to(at::kDouble) - want).abs().max().item<double>(), tolerance);
      for (size_t i = 0; i < 3; ++i)
        EXPECT_LT((ours[i].grad().to(at::kDouble) - theirs[i].grad()).abs().max().item<double>(),
                  tolerance)
            << i << " " << kv_heads;
    }
  }
}

TEST(PackedWholeAttention, SeesLaterPositionsAndNoOtherSequence) {
  at::manual_seed(4);
  ops::PackedSequences sequences;
  sequences.starts = {0, 3, 7};
  const at::Tensor q = at::randn({7, 2, 8}), k = at::randn({7, 2, 8}), v = at::randn({7, 2, 8});
  const at::Tensor before = ops::packed_attention(q, k, v, sequences, false);
  at::Tensor changed = v.clone();
  changed[2] += 1;
  const at::Tensor after = ops::packed_attention(q, k, changed, sequences, false);
  EXPECT_FALSE(at::equal(before[0], after[0]));
  EXPECT_TRUE(at::equal(before.narrow(0, 3, 4), after.narrow(0, 3, 4)));
  const at::Tensor causal = ops::packed_attention(q, k, v, sequences),
                   causal_after = ops::packed_attention(q, k, changed, sequences);
  EXPECT_TRUE(at::equal(causal.narrow(0, 0, 2), causal_after.narrow(0, 0, 2)));
}

}  // namespace
}  // namespace lft::test::packed_whole_test
