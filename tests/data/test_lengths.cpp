#include <gtest/gtest.h>

#include "data/fixtures.h"
#include "src/data/lengths.h"
#include "src/data/prepared_write.h"
#include "support/expect_error.h"

namespace lft::lengths_test {
using namespace lft::data;
using namespace lft::io;
namespace {

using namespace lft::test;

/// Each length equals that of the sample as read.
void expect_measured(const Dataset& dataset, int64_t workers) {
  const std::vector<SampleLength> lengths = measure_lengths(dataset, workers);
  ASSERT_EQ(lengths.size(), static_cast<size_t>(dataset.size()));
  for (size_t i = 0; i < lengths.size(); ++i) {
    const Sample sample = dataset.get(static_cast<int64_t>(i));
    EXPECT_EQ(lengths[i].tokens, static_cast<int64_t>(sample.input_ids.size())) << i;
    EXPECT_EQ(lengths[i].supervised, sample.supervised()) << i;
    EXPECT_EQ(lengths[i].images, static_cast<int64_t>(sample.images.size())) << i;
  }
}

std::string text_rows(int count) {
  std::string text;
  for (int i = 0; i < count; ++i) {
    text += llava_row("t" + std::to_string(i), "",
                      "Q" + std::string(static_cast<size_t>(7 * i % 50), 'q'),
                      "A" + std::string(static_cast<size_t>(3 * i % 40), 'a')) +
            "\n";
  }
  return text;
}

TEST(Lengths, AreThoseOfTextSamplesWholeAndTruncated) {
  const TempDir dir;
  const ByteTokenizer tokenizer;
  EncodeOptions options = small_options();
  const std::string data = dir.write("t.jsonl", text_rows(60));
  for (const int64_t limit : {256, 40}) {
    options.max_tokens = limit;
    const auto dataset = open_dataset(data, "", tokenizer, options);
    expect_measured(*dataset, 1);
    expect_measured(*dataset, 4);
  }
}

TEST(Lengths, ByHandForOneRow) {
  const TempDir dir;
  const ByteTokenizer tokenizer;
  dir.write("img/a.bmp", bmp(9, 6, 1));
  const std::string data = dir.write("one.jsonl", llava_row("a", "a.bmp", "<image>\nQ", "AB"));
  const auto dataset = open_dataset(data, dir.file("img"), tokenizer, small_options());
  const std::vector<SampleLength> lengths = measure_lengths(*dataset, 2);
  ASSERT_EQ(lengths.size(), 1u);
  // "USER: <image>\nQ ASSISTANT: AB</s>": BOS, 6 bytes, 4 positions, 14 bytes, then " AB" and the
  // end token.
  const std::string before = "USER: ", after = "\nQ ASSISTANT:", reply = " AB";
  EXPECT_EQ(lengths[0].tokens,
            static_cast<int64_t>(1 + before.size() + 4 + after.size() + reply.size() + 1));
  EXPECT_EQ(lengths[0].images, 1);
  EXPECT_EQ(lengths[0].supervised, dataset->length(0).supervised);
}

TEST(Lengths, ABadRowMeasuresNothingAndIsNoError) {
  const TempDir dir;
  const ByteTokenizer tokenizer;
  EncodeOptions options = small_options();
  options.skip_bad = true;
  dir.write("img/cut.bmp", "BM");
  dir.write("img/thin.bmp",
            bmp(1, 9, 1).substr(0, 54));  // a header with its size; its pixels are missing
  const std::string data = dir.write(
      "d.jsonl", llava_row("a", "", "Q", "A") + "\n{}\n" + llava_row("c", "", "<image>", "A") +
                     "\n" + llava_row("d", "absent.bmp", "<image>", "A") + "\n" +
                     llava_row("e", "cut.bmp", "<image>", "A") + "\n" +
                     llava_row("f", "thin.bmp", "<image>", "A") + "\n" +
                     llava_row("g", "", "Q", "A"));
  const std::vector<SampleLength> lengths =
      measure_lengths(*open_dataset(data, dir.file("img"), tokenizer, options), 3);
  ASSERT_EQ(lengths.size(), 7u);
  EXPECT_GT(lengths[0].tokens, 0);
  for (const size_t bad : {1u, 2u, 3u, 4u}) EXPECT_EQ(lengths[bad].tokens, 0) << bad;
  EXPECT_GT(lengths[5].tokens, 0);  // no pixel is decoded: a missing image body is not detected
  EXPECT_EQ(lengths[6].tokens, lengths[0].tokens);
}

TEST(Lengths, TheFirstBadRowIsKeptWithItsReasonWhicheverThreadFoundIt) {
  const TempDir dir;
  const ByteTokenizer tokenizer;
  std::string text;
  for (int i = 0; i < 40; ++i) {
    text += i < 7 || i % 2 == 0
                ? llava_row("t", "", "Q", "A")
                : llava_row("bad" + std::to_string(i), "absent.bmp", "<image>", "A");
    text += "\n";
  }
  const auto dataset =
      open_dataset(dir.write("d.jsonl", text), dir.path(), tokenizer, small_options());
  for (const int64_t workers : {1, 4}) {
    BadSamples bad;
    measure_lengths(*dataset, workers, &bad);
    EXPECT_EQ(bad.count, 17);
    EXPECT_EQ(bad.first, 7);
    ASSERT_TRUE(bad.error);
    const ErrorInfo& info = bad.error->info();
    EXPECT_NE(info.where.find("d.jsonl:8 (id \"bad7\"): "), std::string::npos) << info.where;
    EXPECT_NE(info.next.find("data.image_root"), std::string::npos) << info.next;
    EXPECT_LFT_ERROR(ErrorKind::kInput, "data.image_root",
                     dataset->get(7));  // training's own error has this text too
  }
  BadSamples none;
  measure_lengths(*open_dataset(dir.write("good.jsonl", llava_row("t", "", "Q", "A")), "",
                                tokenizer, small_options()),
                  2, &none);
  EXPECT_EQ(none.count, 0);
}

TEST(Lengths, ImagesKeepTheRecipesLimits) {
  const TempDir dir;
  const ByteTokenizer tokenizer;
  dir.write("img/a.bmp", bmp(9, 6, 1));
  const std::string data = dir.write("one.jsonl", llava_row("a", "a.bmp", "<image>\nQ", "AB"));
  for (const ImageLimits limits : {ImageLimits{.max_side = 8}, ImageLimits{.max_pixels = 53}}) {
    EncodeOptions options = small_options();
    options.image_limits = limits;
    const auto dataset = open_dataset(data, dir.file("img"), tokenizer, options);
    EXPECT_LFT_ERROR(ErrorKind::kInput, "image too large", dataset->length(0));
    EXPECT_LFT_ERROR(ErrorKind::kInput, "image too large", dataset->get(0));
  }
}

TEST(Lengths, AreThoseOfPreparedSamples) {
  const TempDir dir;
  const ByteTokenizer tokenizer;
  EncodeOptions options = small_options();
  const auto direct = open_dataset(dir.write("t.jsonl", text_rows(40)), "", tokenizer, options);
  prepare_dataset(*direct, options, dir.file("p"), /*shard_bytes=*/2000);
  const auto prepared = open_dataset(dir.file("p"), "", tokenizer, options);
  expect_measured(*prepared, 1);
  expect_measured(*prepared, 3);
  options.skip_bad = true;
  const auto rows = open_dataset(dir.write("bad.jsonl", llava_row("a", "", "Q", "A") + "\n{}\n"),
                                 "", tokenizer, options);
  prepare_dataset(*rows, options, dir.file("b"));
  EXPECT_EQ(measure_lengths(*open_dataset(dir.file("b"), "", tokenizer, options), 1)[1].tokens, 0);
}

#if LFT_HAVE_OPENCV
TEST(Lengths, AreThoseOfSamplesWithImages) {
  const TempDir dir;
  const ByteTokenizer tokenizer;
  const EncodeOptions options = small_options();
  dir.write("img/a.bmp", bmp(9, 6, 1));
  dir.write("img/large.bmp", bmp(200, 150, 2));  // longer than the part that is read for a header
  std::string json = "[" + llava_row("none", "", "Q", "A");
  for (int i = 0; i < 6; ++i)
    json +=
        "," + llava_row("r" + std::to_string(i), i % 2 ? "a.bmp" : "large.bmp", "<image>\nQ", "A");
  json += R"(,{"id":"two","images":["a.bmp","large.bmp"],"conversations":[{"from":"human",)"
          R"("value":"<image><image>\nQ"},
    {"from":"gpt","value":"A"}]}])";
  const auto direct =
      open_dataset(dir.write("data.json", json), dir.file("img"), tokenizer, options);
  expect_measured(*direct, 2);
  prepare_dataset(*direct, options, dir.file("p"));
  expect_measured(*open_dataset(dir.file("p"), "", tokenizer, options), 2);
}
#endif

}  // namespace
}  // namespace lft::lengths_test
