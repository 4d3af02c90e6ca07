// Which positions see each other beyond the causal mask, by definition; and attention under it.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

#include "models/llama/attention_mask.h"
#include "models/ops/attention/attention.h"

namespace lft::test::attention_mask_test {
namespace {

/// Combined as in transformers' masks of Gemma 3: and(window, or(causal, block)).
bool sees(const std::vector<int64_t>& blocks, int64_t window, size_t from, size_t to) {
  const bool block = !blocks.empty() && blocks[from] >= 0 && blocks[from] == blocks[to];
  const bool near = window == 0 || static_cast<int64_t>(to) > static_cast<int64_t>(from) - window;
  return near && (to <= from || block);
}

at::Tensor tensor_of(const std::vector<int64_t>& blocks) {
  return blocks.empty() ? at::Tensor() : at::tensor(blocks, at::kLong).unsqueeze(0);
}

TEST(AttentionMask, IsTransformersCombinationOfWindowAndBlocks) {
  const std::vector<int64_t> none, two = {-1, 0, 0, 0, 0, 0, -1, -1, 1, 1, -1};
  for (const std::vector<int64_t>& blocks : {none, two}) {
    for (const int64_t window : {0, 1, 3, 10, 11, 40}) {
      const at::Tensor mask =
          llama::attention_mask({tensor_of(blocks), window}, 11, at::kFloat, at::kCPU);
      const bool causal = blocks.empty() && (window == 0 || window >= 11);
      ASSERT_EQ(mask.defined(), !causal) << window;
      if (causal) continue;
      ASSERT_EQ(mask.sizes(), at::IntArrayRef({1, 1, 11, 11}));
      for (size_t from = 0; from < 11; ++from) {
        for (size_t to = 0; to < 11; ++to)
          EXPECT_EQ(mask[0][0][static_cast<int64_t>(from)][static_cast<int64_t>(to)].item<float>(),
                    sees(blocks, window, from, to) ? 0.0f : -INFINITY)
              << window << ' ' << from << ' ' << to;
      }
    }
  }
}

TEST(AttentionMask, RowsWithoutABlockAreCausal) {
  const at::Tensor blocks = at::tensor({-1, -1, -1, -1, 0, 0}, at::kLong).view({2, 3});
  const at::Tensor mask = llama::attention_mask({blocks, 0}, 3, at::kBFloat16, at::kCPU);
  EXPECT_EQ(mask.scalar_type(), at::kBFloat16);
  EXPECT_TRUE(at::equal(mask[0][0].isinf(), at::ones({3, 3}).triu(1).to(at::kBool)));
  EXPECT_EQ(mask.stride(2), 16);
  EXPECT_EQ(mask[1][0].isinf().sum().item<int64_t>(), 2);  // the first sees no part of the block
  EXPECT_FALSE(llama::attention_mask({at::full({1, 3}, -1, at::kLong), 3}, 3, at::kFloat, at::kCPU)
                   .defined());
}

/// Masks of sequences: values and gradients match the definition in double.
TEST(AttentionMask, PackedSequencesEachUnderItsOwn) {
  at::manual_seed(5);
  const std::vector<int64_t> blocks = {-1, 0, 0, 0, -1, -1, -1, -1, -1, -1, -1, -1};
  ops::PackedSequences sequences;
  sequences.starts = {0, 5, 7, 12};
  std::vector<at::Tensor> masks, leaves, doubles;
  for (size_t s = 0; s < 3; ++s) {
    const int64_t begin = sequences.starts[s], count = sequences.starts[s + 1] - begin;
    masks.push_back(llama::attention_mask({tensor_of(blocks).narrow(1, begin, count), 4}, count,
                                          at::kFloat, at::kCPU));
  }
  EXPECT_TRUE(masks[0].defined() && !masks[1].defined() && masks[2].defined());
  for (const int64_t heads : {4, 2, 2}) {
    leaves.push_back(at::randn({12, heads, 8}).requires_grad_(true));
    doubles.push_back(leaves.back().detach().to(at::kDouble).requires_grad_(true));
  }
  const at::Tensor got =
      ops::packed_attention(leaves[0], leaves[1], leaves[2], sequences, true, masks);
  at::Tensor hidden = at::ones({12, 12}, at::kBool);
  for (size_t s = 0; s < 3; ++s) {
    for (int64_t i = sequences.starts[s]; i < sequences.starts[s + 1]; ++i) {
      for (int64_t j = sequences.starts[s]; j < sequences.starts[s + 1]; ++j)
        hidden[i][j] = !sees(blocks, 4, static_cast<size_t>(i), static_cast<size_t>(j));
    }
  }
  const auto heads_first = [](const at::Tensor& x) {
    return x.repeat_interleave(4 / x.size(1), 1).transpose(0, 1);
  };
  const at::Tensor scores =
      at::bmm(heads_first(doubles[0]), heads_first(doubles[1]).transpose(1, 2)) / std::sqrt(8.0);
  const at::Tensor want =
      at::bmm(at::softmax(scores.masked_fill(hidden, -INFINITY), -1), heads_first(doubles[2]))
          .transpose(0, 1);
  const at::Tensor upstream = at::randn({12, 4, 8});
  got.backward(upstream);
  want.backward(upstream.to(at::kDouble));
  EXPECT_LT((got.to(at::kDouble) - want).abs().max().item<double>(), 1e-5);
  for (size_t i = 0; i < 3; ++i)
    EXPECT_LT((leaves[i].grad().to(at::kDouble) - doubles[i].grad()).abs().max().item<double>(),
              1e-5);
}

}  // namespace
}  // namespace lft::test::attention_mask_test
