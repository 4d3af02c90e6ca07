// Packed sequences: the same numbers as one sequence at a time, without padding.
#include <optional>

#include "models/layers/recompute.h"
#include "models/lora/inject.h"
#include "models/lora/inject_select.h"
#include "models/ops/attention/attention.h"
#include "models/ops/core/precision.h"
#include "models/tiny.h"

namespace lft::test::packed_test {
namespace {

std::shared_ptr<const PackedSequences> sequences(const std::vector<int64_t>& lengths) {
  auto packed = std::make_shared<PackedSequences>();
  packed->starts = {0};
  for (const int64_t length : lengths) packed->starts.push_back(packed->starts.back() + length);
  return packed;
}

/// The definition: softmax over the earlier positions of the same sequence, in double.
at::Tensor plain_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                           const PackedSequences& packed) {
  const int64_t heads = q.size(1), repeat = heads / k.size(1);
  at::Tensor out = at::zeros(q.sizes(), at::kDouble);
  for (size_t s = 0; s + 1 < packed.starts.size(); ++s) {
    for (int64_t i = packed.starts[s]; i < packed.starts[s + 1]; ++i) {
      const int64_t seen = i + 1 - packed.starts[s];
      for (int64_t h = 0; h < heads; ++h) {
        const auto part = [&](const at::Tensor& x) {
          return x.narrow(0, packed.starts[s], seen).select(1, h / repeat).to(at::kDouble);
        };
        const at::Tensor scores =
            at::mv(part(k), q[i][h].to(at::kDouble)) / std::sqrt(static_cast<double>(q.size(2)));
        out[i][h] = at::mv(part(v).t(), at::softmax(scores, 0));
      }
    }
  }
  return out;
}

TEST(PackedAttention, SeesTheEarlierPositionsOfItsOwnSequence) {
  at::manual_seed(1);
  const auto packed = sequences({3, 1, 6, 2});
  for (const int64_t kv_heads : {1, 2, 4}) {
    const at::Tensor q = at::randn({12, 4, 8}), k = at::randn({12, kv_heads, 8}),
                     v = at::randn({12, kv_heads, 8});
    const at::Tensor got = packed_attention(q, k, v, *packed),
                     want = plain_attention(q, k, v, *packed);
    EXPECT_LT((got.to(at::kDouble) - want).abs().max().item<double>(), 2e-6)
        << kv_heads;  // float32 sums of at most 8 terms near 1
  }
}

TEST(PackedAttention, PositionsStartAnewInEverySequence) {
  const auto packed = sequences({2, 3});
  EXPECT_TRUE(at::equal(packed->positions(), at::tensor(std::vector<int64_t>{0, 1, 0, 1, 2})));
  EXPECT_EQ(packed->longest(), 3);
}

TEST(PackedAttention, RefusesSequencesThatDoNotFillTheRow) {
  const at::Tensor x = at::zeros({5, 2, 4});
  EXPECT_THROW(packed_attention(x, x, x, *sequences({2, 2})), Error);
}

/// Three rows of tiny_batch() as one.
family::Batch packed_batch(const family::Batch& padded) {
  family::Batch batch;
  std::vector<int64_t> lengths;
  std::vector<at::Tensor> ids, labels;
  for (int64_t r = 0; r < 3; ++r) {
    lengths.push_back(padded.lengths_b[r].item<int64_t>());
    ids.push_back(padded.input_ids_bt[r].narrow(0, 0, lengths.back()));
    labels.push_back(padded.labels_bt[r].narrow(0, 0, lengths.back()).clone());
    labels.back()[0] = -100;
  }
  batch.input_ids_bt = at::cat(ids).unsqueeze(0);
  batch.labels_bt = at::cat(labels).unsqueeze(0);
  batch.lengths_b = at::tensor(std::vector<int64_t>{batch.input_ids_bt.size(1)}, at::kLong);
  batch.pixels = padded.pixels;
  batch.packed = sequences(lengths);
  return batch;
}

struct Pass {
  at::Tensor logprobs;
  std::vector<at::Tensor> gradients;
};

Pass run(bool packed, int64_t recompute_every) {
  const family::ModelConfig config = tiny_config();
  Model model = make_llava(config);
  inject_lora(select_sites(linear_sites(*model), {"llm:all-linear"}),
              {.rank = 4, .alpha = 8, .dropout = 0}, 3);
  const std::vector<Trainable> trainables = make_trainable(*model, {"projector"});
  fill_adapters(model);
  const family::Batch padded = tiny_batch(config);
  Pass pass;
  {
    const RecomputeGuard recompute(recompute_every, /*offload=*/false);
    pass.logprobs = model->supervised_logprobs(packed ? packed_batch(padded) : padded);
  }  // the batch is freed when blocks run again
  pass.logprobs.sum().backward();
  for (const Trainable& trainable : trainables) pass.gradients.push_back(trainable.tensor.grad());
  return pass;
}

/// Both run the same float32 sums over other tile shapes: 1e-5 of the largest value is a hundred
/// units in the last place.
TEST(Packed, TheModelGivesTheSameLogprobsAndGradientsAsPaddedRows) {
  const Pass padded = run(false, 0);
  for (const int64_t every : {0, 1}) {
    const Pass packed = run(true, every);
    ASSERT_EQ(packed.logprobs.sizes(), padded.logprobs.sizes());
    EXPECT_LT((packed.logprobs - padded.logprobs).abs().max().item<double>(), 1e-5);
    ASSERT_EQ(packed.gradients.size(), padded.gradients.size());
    for (size_t i = 0; i < packed.gradients.size(); ++i) {
      const double size = padded.gradients[i].abs().max().item<double>();
      EXPECT_LE((packed.gradients[i] - padded.gradients[i]).abs().max().item<double>(),
                1e-5 * size + 1e-9)
          << i;
    }
  }
}

TEST(Packed, ASequenceDoesNotSeeItsNeighbours) {
  const family::ModelConfig config = tiny_config();
  const Model model = make_llava(config);
  family::Batch batch;
  batch.input_ids_bt =
      at::tensor(std::vector<int64_t>{1, 5, 9, 2, 1, 7, 8, 2}, at::kLong).unsqueeze(0);
  batch.labels_bt =
      at::tensor(std::vector<int64_t>{-100, -100, -100, -100, -100, 7, 8, 2}, at::kLong)
          .unsqueeze(0);
  batch.packed = sequences({4, 4});
  const at::Tensor before = model->supervised_logprobs(batch);
  batch.input_ids_bt[0][2] = 33;
  EXPECT_TRUE(at::equal(model->supervised_logprobs(batch), before));
  batch.input_ids_bt[0][5] = 33;
  EXPECT_FALSE(at::equal(model->supervised_logprobs(batch), before));
}

}  // namespace
}  // namespace lft::test::packed_test
