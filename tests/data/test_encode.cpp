#include <gtest/gtest.h>

#include <numeric>

#include "data/fixtures.h"
#include "src/data/batch.h"
#include "src/data/encode.h"
#include "src/data/loader.h"
#include "src/text/chat/named_form.h"
#include "support/expect_error.h"

namespace lft::encode_test {
using namespace lft::data;
using namespace lft::family;
using namespace lft::llava;
using namespace lft::text;
namespace {

using namespace lft::test;

Row text_row(const std::vector<Turn>& turns) {
  return {.id = "r1", .where = "d.json[4]", .conversation = {messages_of(turns)}, .images = {}};
}

/// The text of the supervised tokens of a sample.
std::string supervised_text(const Sample& sample) {
  std::vector<int64_t> ids;
  for (const int64_t label : sample.labels) {
    if (label != -100) ids.push_back(label);
  }
  return ByteTokenizer().decode(ids, false);
}

std::vector<int64_t> ids_of(const std::string& text) {
  std::vector<int64_t> ids;
  for (const Token& token : ByteTokenizer().encode(text)) ids.push_back(token.id);
  return ids;
}

TEST(Encode, EveryAnswerWithItsSpaceAndEndIsSupervised) {
  const Sample sample =
      encode_row(text_row({{"Q", "one"}, {"R", "two"}}), "", ByteTokenizer(), small_options());
  EXPECT_EQ(sample.input_ids, ids_of("USER: Q ASSISTANT: one</s> USER: R ASSISTANT: two</s>"));
  EXPECT_EQ(supervised_text(sample), " one</s> two</s>");
  EXPECT_EQ(sample.supervised(), 10);
  for (size_t i = 0; i < sample.labels.size(); ++i)
    EXPECT_TRUE(sample.labels[i] == -100 || sample.labels[i] == sample.input_ids[i]);
}

TEST(Encode, TruncationKeepsThePrefix) {
  EncodeOptions options = small_options();
  const Sample whole = encode_row(text_row({{"Q", "one"}}), "", ByteTokenizer(), options);
  options.max_tokens = static_cast<int64_t>(whole.input_ids.size()) - 2;
  const Sample cut = encode_row(text_row({{"Q", "one"}}), "", ByteTokenizer(), options);
  EXPECT_EQ(supervised_text(cut), " on");
  EXPECT_TRUE(std::equal(cut.input_ids.begin(), cut.input_ids.end(), whole.input_ids.begin()));
  options.max_tokens = 5;
  EXPECT_EQ(encode_row(text_row({{"Q", "one"}}), "", ByteTokenizer(), options).supervised(), 0);
}

TEST(Encode, FirstPositionIsNeverSupervised) {
  class NoBos : public ByteTokenizer {
    std::vector<Token> encode(std::string_view text) const override {
      std::vector<Token> tokens = ByteTokenizer::encode(text);
      tokens.erase(tokens.begin());
      return tokens;
    }
  };
  EncodeOptions options = small_options();
  options.chat = named_form("plain", "</s>", "<image>");
  EXPECT_EQ(supervised_text(encode_row(text_row({{"", "one"}}), "", NoBos(), options)), "ne</s>");
}

TEST(Encode, MarksAndImagesMustAgree) {
  Row row = text_row({{"<image>\nQ <image>", "A"}});
  row.images = {"a.bmp"};
  EXPECT_LFT_ERROR(ErrorKind::kInput, "2 marks, 1 images",
                   encode_row(row, "", ByteTokenizer(), small_options()));
  EXPECT_LFT_ERROR(ErrorKind::kInput, "d.json[4] (id \"r1\")",
                   encode_row(row, "", ByteTokenizer(), small_options()));
  row.conversation = {messages_of({{"Q", "A"}})};
  EXPECT_LFT_ERROR(ErrorKind::kInput, "write \"<image>",
                   encode_row(row, "", ByteTokenizer(), small_options()));
  row.images = {};
  row.conversation = {messages_of({{"Q", "an <image>"}})};
  EXPECT_LFT_ERROR(ErrorKind::kInput, "<image> in an answer",
                   encode_row(row, "", ByteTokenizer(), small_options()));
}

TEST(Encode, TokenBeyondTheVocabulary) {
  EncodeOptions options = small_options();
  options.config.text.vocab = 60;
  EXPECT_LFT_ERROR(
      ErrorKind::kInput, "88",
      encode_row(text_row({{"Q", "A"}}), "", ByteTokenizer(), options));  // "U" is 85 + 3
}

#if LFT_HAVE_OPENCV
TEST(Encode, ImagePositionsAreExpandedAndNeverCut) {
  const TempDir dir;
  dir.write("a.bmp", bmp(9, 6, 1));
  dir.write("b.bmp", bmp(5, 8, 2));
  Row row = text_row({{"<image>\nQ<image>", "A"}});
  row.images = {"a.bmp", "b.bmp"};
  EncodeOptions options = small_options();
  const Sample sample = encode_row(row, dir.path(), ByteTokenizer(), options);
  std::vector<int64_t> expected;
  for (const int64_t id : ids_of("USER: <image>\nQ<image> ASSISTANT: A</s>"))
    expected.insert(expected.end(), id == kImage ? 4 : 1, id);
  EXPECT_EQ(sample.input_ids, expected);
  EXPECT_EQ(supervised_text(sample), " A</s>");
  ASSERT_EQ(sample.images.size(), 2u);
  EXPECT_EQ(sample.images[1].chw.size(), 192u);
  options.max_tokens = 17;  // BOS, "USER: ", 4 image positions, "\nQ", 4 more
  EXPECT_EQ(encode_row(row, dir.path(), ByteTokenizer(), options).input_ids.size(), 17u);
  options.max_tokens = 16;
  EXPECT_LFT_ERROR(ErrorKind::kInput, "ends at position 17",
                   encode_row(row, dir.path(), ByteTokenizer(), options));
}

TEST(Encode, BadImageNamesTheRow) {
  const TempDir dir;
  dir.write("cut.bmp", bmp(9, 6, 1).substr(0, 80));
  Row row = text_row({{"<image>\nQ", "A"}});
  for (const char* name : {"cut.bmp", "gone.bmp", "../out.bmp"}) {
    row.images = {name};
    EXPECT_LFT_ERROR(ErrorKind::kInput, "d.json[4] (id \"r1\")",
                     encode_row(row, dir.path(), ByteTokenizer(), small_options()));
  }
}

TEST(Encode, Prompt) {
  const TempDir dir;
  const std::string file = dir.write("a.bmp", bmp(9, 6, 1));
  EncodeOptions options = small_options();
  const Row asked = {.id = "prompt",
                     .where = "prompt",
                     .conversation = {text::messages_of({{"<image>\nQ", ""}})},
                     .images = {file}};
  const Sample sample = encode_prompt(asked, ByteTokenizer(), options);
  EXPECT_EQ(sample.input_ids.size(), ids_of("USER: <image>\nQ ASSISTANT:").size() + 3);
  EXPECT_TRUE(sample.labels.empty());
  EXPECT_FALSE(collate({sample}, options, at::kCPU).labels_bt.defined());
  options.config.text.max_positions = 20;
  EXPECT_LFT_ERROR(ErrorKind::kInput, "longer than the model's positions",
                   encode_prompt(asked, ByteTokenizer(), options));
}
#endif

TEST(Collate, PadsOnTheRight) {
  EncodeOptions options = small_options();
  options.config.pad_token = 299;
  const Sample a{.id = "a", .input_ids = {1, 7, 8}, .labels = {-100, -100, 8}, .images = {}};
  const Sample b{.id = "b", .input_ids = {1}, .labels = {-100}, .images = {}};
  const family::Batch batch = collate({a, b}, options, at::kCPU);
  const int64_t* ids = batch.input_ids_bt.const_data_ptr<int64_t>();
  const int64_t* labels = batch.labels_bt.const_data_ptr<int64_t>();
  EXPECT_EQ(std::vector<int64_t>(ids, ids + 6), (std::vector<int64_t>{1, 7, 8, 1, 299, 299}));
  EXPECT_EQ(std::vector<int64_t>(labels, labels + 6),
            (std::vector<int64_t>{-100, -100, 8, -100, -100, -100}));
  EXPECT_EQ(batch.lengths_b[0].item<int64_t>(), 3);
  EXPECT_EQ(batch.lengths_b[1].item<int64_t>(), 1);
  EXPECT_FALSE(batch.pixels.defined());
}

TEST(Pack, LaysSamplesBehindEachOther) {
  const EncodeOptions options = small_options();
  const Sample a{.id = "a", .input_ids = {1, 7, 8}, .labels = {-100, -100, 8}, .images = {}};
  const Sample b{.id = "b",
                 .input_ids = {1, 9},
                 .labels = {1, 9},
                 .images = {}};  // nothing predicts a first token
  const family::Batch batch = pack({a, b}, options, at::kCPU);
  const int64_t* ids = batch.input_ids_bt.const_data_ptr<int64_t>();
  const int64_t* labels = batch.labels_bt.const_data_ptr<int64_t>();
  EXPECT_EQ(batch.input_ids_bt.sizes(), at::IntArrayRef({1, 5}));
  EXPECT_EQ(std::vector<int64_t>(ids, ids + 5), (std::vector<int64_t>{1, 7, 8, 1, 9}));
  EXPECT_EQ(std::vector<int64_t>(labels, labels + 5),
            (std::vector<int64_t>{-100, -100, 8, -100, 9}));
  EXPECT_EQ(batch.packed->starts, (std::vector<int64_t>{0, 3, 5}));
  EXPECT_FALSE(batch.pixels.defined());
}

TEST(Pack, FillsUpWithSequencesThatNothingLooksAt) {
  EncodeOptions options = small_options();
  options.max_tokens = 3;
  options.config.pad_token = 299;
  const Sample a{.id = "a", .input_ids = {1, 7, 8}, .labels = {-100, -100, 8}, .images = {}};
  const family::Batch batch = pack({a}, options, at::kCPU, /*fill_to=*/8);
  const int64_t* ids = batch.input_ids_bt.const_data_ptr<int64_t>();
  EXPECT_EQ(std::vector<int64_t>(ids, ids + 8),
            (std::vector<int64_t>{1, 7, 8, 299, 299, 299, 299, 299}));
  EXPECT_EQ(batch.packed->starts, (std::vector<int64_t>{0, 3, 6, 8}));
  EXPECT_EQ((batch.labels_bt != -100).sum().item<int64_t>(), 1);
  EXPECT_EQ(pack({a}, options, at::kCPU, /*fill_to=*/2).packed->starts,
            (std::vector<int64_t>{0, 3}));
}

EncodeOptions options_of(const TempDir& dir, std::string* notice, const std::string& fit = "crop",
                         int64_t max_tokens = 100) {
  return encode_options(dir.path(), small_config(), ByteTokenizer(),
                        {{"llava-hf", fit}, max_tokens}, notice);
}

TEST(EncodeOptions, ReadsProcessorFiles) {
  const TempDir dir;
  std::string notice;
  EncodeOptions options = options_of(dir, &notice);
  EXPECT_NE(notice.find("CLIP's are used"), std::string::npos);
  EXPECT_FLOAT_EQ(options.images->mean[0], 0.48145466f);
  EXPECT_EQ(options.eos, "</s>");
  dir.write("preprocessor_config.json",
            R"({"image_mean":[0.5,0.5,0.25],"image_std":[0.5,0.25,0.5],"crop_size":{"height":8,)"
            R"("width":8},"size":{"shortest_edge":8}})");
  options = options_of(dir, &notice, "crop", 600);
  EXPECT_EQ(notice, "data.max_tokens lowered from 600 to 512, the model's positions");
  EXPECT_EQ(options.max_tokens, 512);
  EXPECT_EQ(options.images->mean, (std::vector<float>{0.5f, 0.5f, 0.25f}));
  dir.write("processor_config.json",
            R"({"image_processor":{"image_mean":[0,0,1],"image_std":[1,1,1],"crop_size":8}})");
  dir.write("tokenizer_config.json", R"({"eos_token":{"content":"</s>"}})");
  options = options_of(dir, &notice);
  EXPECT_EQ(options.images->mean[2], 1.0f);
  EXPECT_EQ(notice, "");
  EXPECT_EQ(options.tokenizer_fingerprint.size(), 64u);
}

TEST(EncodeOptions, EndWithTheTokenizersEndTokenToo) {
  const TempDir dir;
  family::ModelConfig config = small_config();
  config.eos_tokens = {5};
  const ByteTokenizer tokenizer;
  dir.write("tokenizer_config.json", R"({"eos_token":"</s>"})");
  const EncodeOptions options =
      encode_options(dir.path(), config, tokenizer, {{"llava-hf", "crop"}, 100}, nullptr);
  EXPECT_EQ(options.config.eos_tokens, (std::vector<int64_t>{5, tokenizer.id_of("</s>")}));
}

TEST(EncodeOptions, RefusesWhatDoesNotFit) {
  const TempDir dir;
  const auto refused = [&](const std::string& json, const std::string& piece) {
    dir.write("preprocessor_config.json", json);
    EXPECT_LFT_ERROR(ErrorKind::kInput, piece, options_of(dir, nullptr));
  };
  refused(R"({"crop_size":{"height":336,"width":336}})", "vision_config.image_size 8");
  refused(R"({"size":{"shortest_edge":9}})", "image_size");
  refused(R"({"image_mean":[0.5,0.5]})", "3 numbers");
  refused(R"({"image_mean":[0.5,0.5,"x"]})", "out of range");
  refused(R"({"image_std":[0.5,0,0.5]})", "out of range");
  refused(R"({"do_normalize":false})", "do_normalize");
  refused(R"({"resample":2})", "resample");
  refused(R"({"rescale_factor":1})", "rescale_factor");
  refused(R"([])", "not a JSON object");
  dir.write("preprocessor_config.json", "{}");
  dir.write("tokenizer_config.json", R"({"eos_token":"<|end|>"})");
  EXPECT_LFT_ERROR(ErrorKind::kInput, "no end token", options_of(dir, nullptr));
  EXPECT_LFT_ERROR(
      ErrorKind::kUsage, "unknown template",
      encode_options(dir.path(), small_config(), ByteTokenizer(), {{"vicuna", "pad"}, 9}, nullptr));
  EXPECT_LFT_ERROR(ErrorKind::kUsage, "pad, crop or native", options_of(dir, nullptr, "squash"));
}

TEST(EncodeOptions, RefusesAnotherTokenizer) {
  const TempDir dir;
  ByteTokenizer tokenizer;
  tokenizer.image_id = 299;
  EXPECT_LFT_ERROR(
      ErrorKind::kInput, "<image> has id 299",
      encode_options(dir.path(), small_config(), tokenizer, {{"plain", "pad"}, 9}, nullptr));
  family::ModelConfig config = small_config();
  config.text.vocab = 200;
  EXPECT_LFT_ERROR(
      ErrorKind::kInput, "ids up to 300",
      encode_options(dir.path(), config, ByteTokenizer(), {{"plain", "pad"}, 9}, nullptr));
}

}  // namespace
}  // namespace lft::encode_test
