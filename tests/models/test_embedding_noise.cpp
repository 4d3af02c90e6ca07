// NEFTune's noise by its closed form: bounds, mean and variance; the same bits for the same
// position in the run; none in evaluation and none on images.
#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <cmath>

#include "kernels/common/error.h"
#include "models/family/embedding_noise.h"
#include "models/ops/core/precision.h"
#include "models/tiny.h"

namespace lft::embedding_noise_test {
using namespace lft::family;
using namespace lft::llava;
namespace {

family::Batch rows(const std::vector<int64_t>& lengths, int64_t width) {
  const auto count = static_cast<int64_t>(lengths.size());
  return {.input_ids_bt = at::full({count, width}, 5, at::kLong),
          .labels_bt = {},
          .lengths_b = at::tensor(lengths),
          .packed = nullptr,
          .pixels = {},
          .images = {}};
}

at::Tensor noise_at(uint64_t step, uint64_t micro, const family::Batch& batch, at::Tensor embeds) {
  const ops::DropoutGuard guard({.seed = 7, .step = step, .micro_batch = micro});
  return embedding_noise(batch, embeds, 5);
}

TEST(EmbeddingNoise, IsUniformWithinTheBoundOfItsSequence) {
  constexpr int64_t kWidth = 500, kHidden = 64;
  const family::Batch batch = rows({100, 400}, kWidth);
  const at::Tensor noise = noise_at(1, 0, batch, at::zeros({2, kWidth, kHidden}));
  for (const auto& [row, length] : {std::pair<int64_t, double>{0, 100}, {1, 400}}) {
    const double most = 5 / std::sqrt(length * kHidden), count = kWidth * kHidden;
    const at::Tensor of_row = noise[row].to(at::kDouble);
    EXPECT_LE(of_row.abs().max().item<double>(), most);
    EXPECT_GT(of_row.abs().max().item<double>(), 0.999 * most);  // maximum of 32,000 draws
    // The mean of n uniform draws has deviation m / sqrt(3 n), that of their squares
    // m^2 sqrt(4 / 45 / n); five of each.
    EXPECT_LT(std::abs(of_row.mean().item<double>()), 5 * most / std::sqrt(3 * count));
    EXPECT_NEAR(of_row.square().mean().item<double>(), most * most / 3,
                5 * most * most * std::sqrt(4. / 45 / count));
  }
}

TEST(EmbeddingNoise, PackedSequencesHaveTheirOwnBounds) {
  family::Batch batch = rows({500}, 500);
  batch.packed = std::make_shared<ops::PackedSequences>(
      ops::PackedSequences{.starts = {0, 100, 500}, .starts_s1 = {}});
  const at::Tensor noise = noise_at(1, 0, batch, at::zeros({1, 500, 64}))[0];
  EXPECT_GT(noise.narrow(0, 0, 100).abs().max().item<double>(), 0.99 * 5 / std::sqrt(100. * 64));
  EXPECT_LE(noise.narrow(0, 100, 400).abs().max().item<double>(), 5 / std::sqrt(400. * 64));
}

TEST(EmbeddingNoise, IsAFunctionOfThePlaceInTheRun) {
  const family::Batch batch = rows({8}, 8);
  const at::Tensor embeds = at::zeros({1, 8, 16}, at::kBFloat16);
  const at::Tensor noise = noise_at(3, 1, batch, embeds);
  EXPECT_EQ(noise.scalar_type(), at::kBFloat16);
  EXPECT_TRUE(noise.equal(noise_at(3, 1, batch, embeds)));
  EXPECT_FALSE(noise.equal(noise_at(4, 1, batch, embeds)));
  EXPECT_FALSE(noise.equal(noise_at(3, 2, batch, embeds)));
  EXPECT_THROW(embedding_noise(batch, embeds, 5), Error) << "outside of a training pass";
}

TEST(EmbeddingNoise, TextIsMovedInTrainingAloneAndImagesNever) {
  Model model = test::make_llava(test::tiny_config());
  const int64_t positions = test::positions_of(model->config);
  family::Batch batch = rows({positions + 4}, positions + 4);
  batch.input_ids_bt.narrow(1, 1, positions).fill_(model->config.image_token);
  const int64_t side = test::vision_of(model->config).image_size;
  batch.pixels = at::ones({1, 3, side, side});
  const at::NoGradGuard no_grad;
  const at::Tensor plain = model->embed(batch);
  model->neftune_alpha = 5;
  EXPECT_TRUE(model->embed(batch).embeds_btd.equal(plain)) << "in evaluation";
  const ops::DropoutGuard guard({.seed = 7, .step = 1, .micro_batch = 0});
  const at::Tensor noisy = model->embed(batch);
  const at::Tensor moved = (noisy - plain).abs().amax(2)[0];
  EXPECT_EQ(moved.narrow(0, 1, positions).max().item<float>(), 0);
  EXPECT_GT(moved[0].item<float>(), 0);
  EXPECT_GT(moved.narrow(0, positions + 1, 3).min().item<float>(), 0);
}

}  // namespace
}  // namespace lft::embedding_noise_test
