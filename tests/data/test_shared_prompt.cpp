// The positions that both answers of a pair share.
#include <gtest/gtest.h>

#include "data/fixtures.h"
#include "src/data/batch.h"
#include "src/data/encode.h"
#include "src/data/lengths.h"
#include "src/data/prepared_write.h"
#include "src/data/shared_prompt.h"

namespace lft::shared_prompt_test {
using namespace lft::data;
namespace {

using namespace lft::test;

Sample sample(std::vector<int64_t> ids, size_t prompt) {
  std::vector<int64_t> labels = ids;
  std::fill_n(labels.begin(), prompt, kIgnoreIndex);
  return {.id = "s", .input_ids = std::move(ids), .labels = std::move(labels), .images = {}};
}

TEST(SharedPrompt, IsThePromptWithoutItsLastToken) {
  const family::ModelConfig config = small_config();
  const auto of = [&](const Sample& chosen, const Sample& rejected) {
    return shared_prompt(chosen, rejected, config);
  };
  EXPECT_EQ(of(sample({1, 2, 3, 7, 8}, 3), sample({1, 2, 3, 9}, 3)), 2);
  // Answers with a common beginning share no more.
  EXPECT_EQ(of(sample({1, 2, 3, 7, 8}, 3), sample({1, 2, 3, 7, 9}, 3)), 2);
  // Prompts that differ share what comes before.
  EXPECT_EQ(of(sample({1, 2, 3, 4, 8}, 4), sample({1, 2, 5, 4, 9}, 4)), 1);
  EXPECT_EQ(of(sample({1, 7}, 1), sample({1, 8}, 1)), 0);
  EXPECT_EQ(of(sample({1, 7}, 1), sample({2, 7}, 1)), 0);
  EXPECT_EQ(of(sample({1, 2, 3}, 3), sample({1, 2, 3}, 3)), 2);  // no answer within the limit
  // An image after the part in common belongs to each side.
  EXPECT_EQ(of(sample({1, 2, kImage, 4, 8}, 4), sample({1, 5, kImage, 4, 8}, 4)), 0);
  EXPECT_EQ(of(sample({1, kImage, kImage, 4, 8}, 4), sample({1, kImage, kImage, 4, 9}, 4)), 3);
  EXPECT_EQ(of(sample({1, 2, kImage, 8}, 3), sample({1, 2, kImage, 9}, 3)), 0);
}

/// Angles of dynamic scaling depend on the length of the whole sequence.
TEST(SharedPrompt, IsNoneForAnglesThatFollowTheLength) {
  family::ModelConfig config = small_config();
  config.text.rope_scaling.type = "dynamic";
  ASSERT_TRUE(config.text.rope_scaling.follows_length());
  EXPECT_EQ(shared_prompt(sample({1, 2, 3, 7}, 3), sample({1, 2, 3, 9}, 3), config), 0);
}

TEST(SharedPrompt, ABatchHasItOnce) {
  EncodeOptions options = small_options();
  options.pairs = options.share_prompts = true;
  const std::vector<uint8_t> black(3 * 8 * 8, 0), white(3 * 8 * 8, 255);
  const auto with_image = [](Sample side, const std::vector<uint8_t>& pixels) {
    side.images.push_back({.shape = {1, 8, 8}, .chw = pixels, .positions = 1});
    return side;
  };
  Sample chosen = with_image(sample({1, kImage, 5, 7, 8}, 3), black),
         rejected = with_image(sample({1, kImage, 5, 9}, 3), black);
  rejected.shared = 2;
  const Sample alone = with_image(sample({1, kImage, 6}, 2), white);
  const family::Batch batch = pack({alone, chosen, rejected}, options, at::kCPU);
  const auto numbers = [](const at::Tensor& row) {
    const int64_t* data = row.const_data_ptr<int64_t>();
    return std::vector<int64_t>(data, data + row.numel());
  };
  EXPECT_EQ(numbers(batch.input_ids_bt),
            (std::vector<int64_t>{1, kImage, 6, 1, kImage, 5, 7, 8, 5, 9}));
  EXPECT_EQ(numbers(batch.labels_bt),
            (std::vector<int64_t>{-100, -100, 6, -100, -100, -100, 7, 8, -100, 9}));
  EXPECT_EQ(batch.packed->starts, (std::vector<int64_t>{0, 3, 8, 10}));
  EXPECT_EQ(batch.packed->shared, (std::vector<int64_t>{0, 0, 2}));
  EXPECT_EQ(batch.images.size(), 2u);
  EXPECT_TRUE(batch.shown.empty());
  EXPECT_EQ(packed_positions({alone, chosen, rejected}, true), 10);

  // Not after another sample, with other images, or where it is not asked for.
  EXPECT_TRUE(pack({alone, rejected}, options, at::kCPU).packed->shared.empty());
  const Sample other = with_image(sample({1, kImage, 5, 7, 8}, 3), white);
  EXPECT_TRUE(pack({other, rejected}, options, at::kCPU).packed->shared.empty());
  options.share_prompts = false;
  const family::Batch apart = pack({chosen, rejected}, options, at::kCPU);
  EXPECT_TRUE(apart.packed->shared.empty());
  EXPECT_EQ(apart.shown, (std::vector<int64_t>{0, 0}));
}

/// Of rows, of their samples and of prepared ones.
TEST(SharedPrompt, IsMeasuredAsItIsEncoded) {
  const TempDir dir;
  const ByteTokenizer tokenizer;
  EncodeOptions options = small_options();
  options.pairs = options.share_prompts = true;
  dir.write("img/a.bmp", bmp(9, 6, 1));
  dir.write("img/b.bmp", bmp(9, 6, 2));
  const std::string data = dir.write(
      "p.jsonl", R"({"prompt": "<image>Q", "chosen": "yes", "rejected": "no", "images": ["a.bmp"]})"
                 "\n"
                 R"({"prompt": "<image>Q", "chosen": "yes", "rejected": "no", "images": ["a.bmp"],)"
                 R"( "rejected_images": ["b.bmp"]})"
                 "\n"
                 R"({"prompt": "Q", "chosen": "yes", "rejected": "no"})"
                 "\n");
  const auto rows = open_dataset(data, dir.file("img"), tokenizer, options);
  prepare_dataset(*rows, options, dir.file("out"), 1 << 20);
  const auto prepared = open_dataset(dir.file("out"), "", tokenizer, options);
  // BOS, "USER: ", 4 positions, "Q ASSISTANT:" without the last one.
  const std::vector<int64_t> expected = {1 + 6 + 4 + 11, 0, 1 + 6 + 11};
  for (const Dataset* dataset : {rows.get(), prepared.get()}) {
    for (int64_t i = 0; i < 3; ++i) {
      const Sample pair = dataset->get(i);
      const SampleLength length = dataset->length(i);
      EXPECT_EQ(pair.rejected.at(0).shared, expected[static_cast<size_t>(i)]) << i;
      EXPECT_EQ(length.shared, expected[static_cast<size_t>(i)]) << i;
      EXPECT_EQ(length.packed(), packed_positions(dataset->sides(i), true)) << i;
      EXPECT_EQ(length.tokens, packed_positions(dataset->sides(i), false)) << i;
    }
  }
}

}  // namespace
}  // namespace lft::shared_prompt_test
