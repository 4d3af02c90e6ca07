#include <gtest/gtest.h>

#include <filesystem>

#include "data/fixtures.h"
#include "src/data/loader.h"
#include "src/data/prepared_write.h"
#include "src/data/rows/row_reader.h"
#include "support/captured_stderr.h"
#include "support/expect_error.h"

namespace lft::prepared_test {
using namespace lft::data;
namespace {

using namespace lft::test;

std::string read_text(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void expect_same(const Sample& a, const Sample& b) {
  EXPECT_EQ(a.id, b.id);
  EXPECT_EQ(a.input_ids, b.input_ids);
  EXPECT_EQ(a.labels, b.labels);
  ASSERT_EQ(a.images.size(), b.images.size());
  for (size_t i = 0; i < a.images.size(); ++i) EXPECT_EQ(a.images[i].chw, b.images[i].chw);
}

/// Text-only rows of different lengths as JSONL.
std::string write_text_rows(const TempDir& dir, int count) {
  std::string text;
  for (int i = 0; i < count; ++i)
    text += llava_row("t" + std::to_string(i), "", "Q" + std::string(static_cast<size_t>(i), 'q'),
                      "A") +
            "\n";
  return dir.write("text.jsonl", text);
}

#if LFT_HAVE_OPENCV
TEST(Prepared, GivesTheSameSamples) {
  const TempDir dir;
  dir.write("img/a.bmp", bmp(9, 6, 1));
  dir.write("img/b.bmp", bmp(5, 8, 2));
  const std::string two =
      R"({"id":"two","images":["b.bmp","a.bmp"],"conversations":[{"from":"human",)"
      R"("value":"<image><image>\nQ"},
    {"from":"gpt","value":"A"},{"from":"human","value":"R"},{"from":"gpt","value":"B"}]})";
  std::string json = "[" + two + "," + llava_row("none", "", "Q", "A");
  for (int i = 0; i < 6; ++i)
    json += "," + llava_row("r" + std::to_string(i), i % 2 ? "a.bmp" : "b.bmp", "<image>\nQ",
                            "answer " + std::to_string(i));
  const std::string data = dir.write("data.json", json + "]"), out = dir.file("prepared");
  const ByteTokenizer tokenizer;
  const EncodeOptions options = small_options();
  const auto direct = open_dataset(data, dir.file("img"), tokenizer, options);
  prepare_dataset(*direct, options, out, /*shard_bytes=*/1000);
  EXPECT_TRUE(std::filesystem::exists(out + "/shard-00001.safetensors"));
  std::filesystem::remove_all(dir.file("img"));
  const auto prepared = open_dataset(out, "", tokenizer, options);
  ASSERT_EQ(prepared->size(), 8);
  EXPECT_EQ(direct->image_paths(0)[0], dir.file("img/b.bmp"));
  dir.write("img/a.bmp", bmp(9, 6, 1));
  dir.write("img/b.bmp", bmp(5, 8, 2));
  for (const int64_t i : {7, 0, 1, 2, 3, 4, 5, 6}) {
    expect_same(prepared->get(i), direct->get(i));
    EXPECT_EQ(prepared->id(i), direct->id(i));
    EXPECT_EQ(prepared->row(i).turns().back().answer, direct->row(i).turns().back().answer);
    EXPECT_EQ(prepared->row(i).images, direct->row(i).images);
  }
  EXPECT_TRUE(prepared->image_paths(0).empty());
  // A second run replaces the first, byte for byte.
  const std::string hash = prepared->hash();
  prepare_dataset(*direct, options, out, 1000);
  EXPECT_EQ(open_dataset(out, "", tokenizer, options)->hash(), hash);
}
#endif

TEST(Prepared, StoppedItLeavesNothing) {
  const TempDir dir;
  const ByteTokenizer tokenizer;
  const EncodeOptions options = small_options();
  const auto rows =
      open_dataset(write_text_rows(dir, 100), "", tokenizer, options);  // more than one group
  const auto entries = [&] {
    return std::distance(std::filesystem::directory_iterator(dir.path()), {});
  };
  const auto before = entries();
  int groups = 0;
  const auto stop = [&] {
    if (++groups == 2) throw std::runtime_error("stopped");
  };
  EXPECT_THROW(prepare_dataset(*rows, options, dir.file("p"), kPreparedShardBytes, stop),
               std::runtime_error);
  EXPECT_EQ(groups, 2);
  EXPECT_EQ(entries(), before);
  prepare_dataset(*rows, options, dir.file("p"));
  EXPECT_EQ(open_dataset(dir.file("p"), "", tokenizer, options)->size(), 100);
}

TEST(Prepared, RefusesOtherSettingsNamingEach) {
  const TempDir dir;
  const ByteTokenizer tokenizer;
  EncodeOptions options = small_options();
  prepare_dataset(*open_dataset(write_text_rows(dir, 3), "", tokenizer, options), options,
                  dir.file("p"));
  EXPECT_EQ(open_dataset(dir.file("p"), "", tokenizer, options)->size(), 3);
  options.image_fit = "crop";
  options.max_tokens = 99;
  options.tokenizer_fingerprint = "other";
  EXPECT_LFT_ERROR(ErrorKind::kInput, "image_fit \"pad\"",
                   open_dataset(dir.file("p"), "", tokenizer, options));
  EXPECT_LFT_ERROR(ErrorKind::kInput, "max_tokens 99",
                   open_dataset(dir.file("p"), "", tokenizer, options));
  EXPECT_LFT_ERROR(ErrorKind::kInput, "tokenizer \"other\"",
                   open_dataset(dir.file("p"), "", tokenizer, options));
}

/// A sample of two rows and an image, so that both kinds of shards exist.
class TwoRows : public Dataset {
 public:
  int64_t size() const override { return 2; }
  Sample get(int64_t index) const override {
    Sample sample{.id = id(index),
                  .input_ids = {kBos, 70, 71, kEos},
                  .labels = {-100, 70, -100, kEos},
                  .images = {}};
    if (index == 0) return sample;
    sample.input_ids.insert(sample.input_ids.begin() + 1, 4, kImage);
    sample.labels.insert(sample.labels.begin(), 4, -100);
    sample.images.push_back({.shape = {.height = 8, .width = 8},
                             .chw = std::vector<uint8_t>(3 * 8 * 8, 100),
                             .positions = 4});
    return sample;
  }
  std::string id(int64_t index) const override { return "t" + std::to_string(index); }
  std::vector<std::string> image_paths(int64_t) const override { return {}; }
  Row row(int64_t index) const override {
    return {.id = id(index),
            .where = "x:1",
            .conversation = {text::messages_of({{"a", "b"}})},
            .images = {}};
  }
  std::string hash() const override { return ""; }
};

TEST(Prepared, SeesDamage) {
  const TempDir dir;
  const ByteTokenizer tokenizer;
  const EncodeOptions options = small_options();
  const std::string out = dir.file("p");
  const auto open = [&] { return open_dataset(out, "", tokenizer, options); };
  prepare_dataset(TwoRows(), options, out);
  for (const std::string name : {"shard-00000.safetensors", "images-00000.safetensors"}) {
    const std::string bytes = read_text(out + "/" + name);
    for (const size_t cut : {size_t{1}, size_t{20}, bytes.size() - 4}) {
      dir.write("p/" + name, bytes.substr(0, bytes.size() - cut));
      EXPECT_LFT_ERROR(ErrorKind::kInput, name, open());
    }
    const uint64_t header =
        8 + static_cast<uint8_t>(bytes[0]) + 256ull * static_cast<uint8_t>(bytes[1]);
    for (size_t at = header; at < bytes.size(); ++at) {  // each bit of each byte counts
      std::string forged = bytes;
      forged[at] = static_cast<char>(forged[at] ^ (1 << at % 8));
      dir.write("p/" + name, forged);
      const auto both = [&] {
        const auto dataset = open();
        dataset->get(0);
        dataset->get(1);
      };
      EXPECT_LFT_ERROR(ErrorKind::kInput, "prepared data is damaged", both());
    }
    std::filesystem::remove(out + "/" + name);
    EXPECT_LFT_ERROR(ErrorKind::kInput, name, open());
    dir.write("p/" + name, bytes);
  }
  expect_same(open()->get(1), TwoRows().get(1));
  const std::string index = read_text(out + "/index.json");
  dir.write("p/index.json", "{\"lft_prepared\": 4}");
  EXPECT_LFT_ERROR(ErrorKind::kInput, "lft_prepared 4", open());
  std::string fewer = index;
  fewer.replace(fewer.find("\"count\": 2"), 10, "\"count\": 3");
  dir.write("p/index.json", fewer);
  EXPECT_LFT_ERROR(ErrorKind::kInput, "shard-00000", open());
}

TEST(Prepared, DamageIsNoBadSample) {
  const TempDir dir;
  const ByteTokenizer tokenizer;
  EncodeOptions options = small_options();
  options.skip_bad = true;
  prepare_dataset(TwoRows(), options, dir.file("p"));
  std::string bytes = read_text(dir.file("p/shard-00000.safetensors"));
  bytes.back() ^= 1;
  dir.write("p/shard-00000.safetensors", bytes);
  const auto dataset = open_dataset(dir.file("p"), "", tokenizer, options);
  Loader loader(*dataset, {.batch_size = 2, .workers = 1, .shuffle = false, .skip_bad = true});
  EXPECT_LFT_ERROR(ErrorKind::kInput, "prepared data is damaged", loader.next());
}

/// Instead of two rows, many with one image: it is stored once.
class OneImage : public TwoRows {
 public:
  int64_t size() const override { return 400; }
  Sample get(int64_t index) const override {
    Sample sample = TwoRows::get(1);
    sample.id = id(index);
    uint8_t value = 0;
    for (uint8_t& pixel : sample.images[0].chw) pixel = value += 37;
    return sample;
  }
};

TEST(Prepared, AnImageIsStoredOnce) {
  const TempDir dir;
  const ByteTokenizer tokenizer;
  const EncodeOptions options = small_options();
  prepare_dataset(OneImage(), options, dir.file("p"), /*shard_bytes=*/4096);
  EXPECT_TRUE(std::filesystem::exists(dir.file("p/shard-00003.safetensors")));
  EXPECT_FALSE(std::filesystem::exists(dir.file("p/images-00001.safetensors")));
  EXPECT_LE(std::filesystem::file_size(dir.file("p/images-00000.safetensors")), 700u);
  const auto prepared = open_dataset(dir.file("p"), "", tokenizer, options);
  for (const int64_t i : {0, 57, 399}) expect_same(prepared->get(i), OneImage().get(i));
  EXPECT_TRUE(prepared->any_image());
}

TEST(Prepared, AnotherVersionIsRefused) {
  const TempDir dir;
  const ByteTokenizer tokenizer;
  const EncodeOptions options = small_options();
  dir.write("p/index.json", R"({"lft_prepared": 1, "samples": 8})");
  EXPECT_LFT_ERROR(ErrorKind::kInput, "lft_prepared 1",
                   open_dataset(dir.file("p"), "", tokenizer, options));
}

TEST(Prepared, BadSamplesAreCountedNamedAndLimited) {
  const TempDir dir;
  const ByteTokenizer tokenizer;
  EncodeOptions options = small_options();
  options.skip_bad = true;
  const std::string good = llava_row("a", "", "Q", "A") + "\n",
                    bad = "{}\n" + llava_row("c", "none.bmp", "<image>", "A") + "\n";
  const auto rows = [&](const std::string& text) {
    return open_dataset(dir.write("d.jsonl", text), dir.path(), tokenizer, options);
  };
  options.max_bad = 2;
  const std::string said = test::through_pipe(
      [&] { EXPECT_EQ(prepare_dataset(*rows(good + bad), options, dir.file("p")), 2); });
  for (const char* named : {"skipped a bad sample: ", "d.jsonl:2: ", "d.jsonl:3: c: "})
    EXPECT_NE(said.find(named), std::string::npos) << said;
  EXPECT_LFT_ERROR(ErrorKind::kInput, "all samples are bad",
                   prepare_dataset(*rows(bad), options, dir.file("all")));
  options.max_bad = 1;
  EXPECT_LFT_ERROR(ErrorKind::kInput, "at most data.max_bad = 1",
                   prepare_dataset(*rows(good + bad), options, dir.file("few")));
  EXPECT_FALSE(std::filesystem::exists(dir.file("few")));
}

TEST(Prepared, BadRowsKeepTheirPlaceUnderSkip) {
  const TempDir dir;
  const ByteTokenizer tokenizer;
  EncodeOptions options = small_options();
  const std::string data = dir.write("d.jsonl", llava_row("a", "", "Q", "A") + "\n{}\n" +
                                                    llava_row("c", "", "<image>", "A") + "\n" +
                                                    llava_row("d", "", "Q", "D") + "\n");
  EXPECT_LFT_ERROR(ErrorKind::kInput, "d.jsonl:2", open_dataset(data, "", tokenizer, options));
  options.skip_bad = true;
  const auto direct = open_dataset(data, "", tokenizer, options);
  prepare_dataset(*direct, options, dir.file("p"));
  const auto prepared = open_dataset(dir.file("p"), "", tokenizer, options);
  for (const Dataset* dataset : {direct.get(), prepared.get()}) {
    LoaderOptions loading{.batch_size = 4,
                          .grad_accum = 1,
                          .workers = 2,
                          .seed = 1,
                          .shuffle = true,
                          .skip_bad = true};
    const StepSamples step = Loader(*dataset, loading).next();
    EXPECT_EQ(step.skipped.size(), 2u);
    EXPECT_EQ(step.micro[0].size(), 2u);
    EXPECT_EQ(step.indices, Loader(*direct, loading).next().indices);
  }
  options.skip_bad = false;
  EXPECT_LFT_ERROR(ErrorKind::kInput, "d.jsonl:2",
                   open_dataset(dir.file("p"), "", tokenizer, options));
}

TEST(Prepared, NeverReplacesWhatIsNotItsOwn) {
  const TempDir dir;
  const ByteTokenizer tokenizer;
  const EncodeOptions options = small_options();
  const auto dataset = open_dataset(write_text_rows(dir, 2), "", tokenizer, options);
  dir.write("home/thesis.txt", "years of work");
  EXPECT_LFT_ERROR(ErrorKind::kUsage, "not prepared data",
                   prepare_dataset(*dataset, options, dir.file("home")));
  EXPECT_EQ(read_text(dir.file("home/thesis.txt")), "years of work");
  EXPECT_LFT_ERROR(ErrorKind::kInput, "did not write",
                   open_dataset(dir.file("home"), "", tokenizer, options));
}

TEST(Dataset, HashFollowsTheRowsAndNotTheirPlace) {
  const TempDir dir;
  const ByteTokenizer tokenizer;
  const auto hash = [&](const std::string& name, const std::string& text) {
    return open_dataset(dir.write(name, text), "", tokenizer, small_options())->hash();
  };
  const std::string a = llava_row("a", "", "Q", "A"), b = llava_row("b", "", "Q", "B");
  EXPECT_EQ(hash("x.jsonl", a + "\n" + b), hash("y.json", "[" + a + "," + b + "]"));
  EXPECT_NE(hash("x.jsonl", a + "\n" + b), hash("x.jsonl", b + "\n" + a));
  EXPECT_NE(hash("x.jsonl", a), hash("x.jsonl", a + "\n" + b));
}

}  // namespace
}  // namespace lft::prepared_test
