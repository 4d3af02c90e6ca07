// The index that a data set keeps for a later start, and when it can be used.
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>

#include "data/fixtures.h"
#include "src/data/lengths.h"
#include "src/data/store/length_table.h"
#include "support/expect_error.h"

namespace lft::kept_index_test {
using namespace lft::data;
namespace {

using namespace lft::test;

/// Counts the tokenised texts.
class CountingTokenizer : public ByteTokenizer {
 public:
  std::vector<Token> encode(std::string_view text) const override {
    ++count;
    return ByteTokenizer::encode(text);
  }
  mutable std::atomic<int> count{0};
};

class KeptIndex : public ::testing::Test {
 protected:
  KeptIndex() {
    std::string text;
    for (int i = 0; i < 30; ++i) {
      text += llava_row("r" + std::to_string(i), i % 2 ? "a.bmp" : "b.bmp", "<image>\nQ",
                        std::string(static_cast<size_t>(i + 1), 'a')) +
              "\n";
    }
    dir_.write("rows.jsonl", text);
    dir_.write("img/a.bmp", bmp(9, 6, 1));
    dir_.write("img/b.bmp", bmp(5, 8, 2));
  }
  std::unique_ptr<Dataset> open(const EncodeOptions& options, bool lengths = false) const {
    return open_dataset(dir_.file("rows.jsonl"), dir_.file("img"), tokenizer_, options,
                        {.kept = {dir_.file("kept")}, .lengths = lengths});
  }
  /// The number of rows tokenised to determine all lengths.
  int measured(const EncodeOptions& options = small_options()) const {
    const auto dataset = open(options);
    tokenizer_.count = 0;
    measure_lengths(*dataset, 2);
    return tokenizer_.count;
  }

  const TempDir dir_;
  const CountingTokenizer tokenizer_;
};

TEST_F(KeptIndex, LengthsAreMeasuredOnce) {
  const EncodeOptions options = small_options();
  const auto first = open(options, /*lengths=*/true);
  EXPECT_EQ(tokenizer_.count, 30);
  const std::vector<SampleLength> lengths = measure_lengths(*first, 2);
  EXPECT_EQ(tokenizer_.count, 30);
  first->keep_index(dir_.file("kept"));
  EXPECT_EQ(measured(), 0);
  const std::vector<SampleLength> again = measure_lengths(*open(options), 2);
  for (size_t i = 0; i < lengths.size(); ++i) {
    EXPECT_EQ(again[i].tokens, lengths[i].tokens);
    EXPECT_EQ(again[i].supervised, lengths[i].supervised);
    EXPECT_EQ(again[i].images, lengths[i].images);
    EXPECT_EQ(again[i].cut, lengths[i].cut);
    EXPECT_EQ(again[i].reading, lengths[i].reading);
    EXPECT_GT(again[i].reading, 0);
    EXPECT_EQ(again[i].values, lengths[i].values);
    EXPECT_EQ(again[i].tower, lengths[i].tower);
    EXPECT_EQ(again[i].placed, lengths[i].placed);
  }
}

TEST_F(KeptIndex, IsFoundBesideTheData) {
  open(small_options(), /*lengths=*/true)->keep_index(dir_.file("rows.jsonl.lft"));
  EXPECT_EQ(measured(), 0);
}

TEST_F(KeptIndex, OtherRulesAreMeasuredAnew) {
  open(small_options(), /*lengths=*/true)->keep_index(dir_.file("kept"));
  const auto with = [](const auto& change) {
    EncodeOptions options = small_options();
    change(options);
    return options;
  };
  EXPECT_EQ(measured(with([](EncodeOptions& o) { o.max_tokens = 30; })), 30);
  EXPECT_EQ(measured(with(
                [](EncodeOptions& o) { o.chat = text::named_form("plain", "</s>", "<image>"); })),
            30);
  EXPECT_EQ(measured(with([](EncodeOptions& o) { o.tokenizer_fingerprint = "other"; })), 30);
  EXPECT_EQ(measured(with([](EncodeOptions& o) { o.image_limits.max_side = 77; })), 30);
  EXPECT_EQ(measured(), 0);
}

TEST_F(KeptIndex, ImagesThatChangeAreMeasuredAnew) {
  open(small_options(), /*lengths=*/true)->keep_index(dir_.file("kept"));
  dir_.write("img/a.bmp", bmp(12, 6, 1));
  EXPECT_EQ(measured(), 30);
  EXPECT_GT(measure_lengths(*open(small_options()), 1)[1].reading,
            measure_lengths(*open(small_options()), 1)[0].reading);
}

TEST_F(KeptIndex, ABadRowIsLookedAtAgain) {
  EncodeOptions options = small_options();
  options.skip_bad = true;
  std::filesystem::rename(dir_.file("img/a.bmp"), dir_.file("img/away.bmp"));
  open(options, /*lengths=*/true)->keep_index(dir_.file("kept"));
  BadSamples bad;
  measure_lengths(*open(options), 2, &bad);
  EXPECT_EQ(bad.count, 15);
  EXPECT_EQ(bad.first, 1);
  std::filesystem::rename(dir_.file("img/away.bmp"), dir_.file("img/a.bmp"));
  measure_lengths(*open(options), 2, &bad);
  EXPECT_EQ(bad.count, 0);
}

TEST_F(KeptIndex, ATableThatIsCutOrOfOtherRowsIsNotTaken) {
  const std::vector<SampleLength> lengths(9, {.tokens = 5, .supervised = 2, .images = 1});
  const std::string path = dir_.file("t.lengths");
  LengthTable(lengths).save(path, "key");
  EXPECT_EQ(LengthTable::load(path, "key", 9)->at(8).tokens, 5);
  EXPECT_FALSE(LengthTable::load(path, "other key", 9));
  EXPECT_FALSE(LengthTable::load(path, "key", 8));
  EXPECT_FALSE(LengthTable::load(dir_.file("absent"), "key", 9));
  std::ifstream in(path, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(in), {}};
  for (size_t size = 0; size < bytes.size(); size += 11) {
    dir_.write("t.lengths", bytes.substr(0, size));
    EXPECT_FALSE(LengthTable::load(path, "key", 9)) << size;
  }
  dir_.write("t.lengths", bytes);
  Columns columns = Columns::load(path);
  columns.set("figure", std::vector<int32_t>(9, 1));  // there is one set of figures, 0
  columns.save(path);
  EXPECT_FALSE(LengthTable::load(path, "key", 9));
}

}  // namespace
}  // namespace lft::kept_index_test
