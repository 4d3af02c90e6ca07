// The files that a path of a recipe names: folders of JSON or CSV files, LLaMA-Factory's
// dataset_info.json, Hugging Face's imagefolder.
#include <gtest/gtest.h>

#include "data/fixtures.h"
#include "src/data/encode.h"
#include "src/data/row_dataset.h"
#include "src/data/sources/data_files.h"
#include "support/expect_error.h"

namespace lft::data_files_test {
using namespace lft::data;
namespace {

using test::TempDir;

constexpr char kRow[] = "{\"question\":\"Q\",\"answer\":\"A\"}\n";

std::vector<std::string> names(const TempDir& dir, const std::string& path = "") {
  std::vector<std::string> found;
  for (const DataFile& file : data_files(dir.path() + path))
    found.push_back(file.path.substr(dir.path().size()));
  return found;
}
using Names = std::vector<std::string>;

TEST(DataFiles, AFolderOfJsonFilesOrOfTables) {
  const TempDir dir;
  for (const char* name : {"json/b.jsonl", "json/a.json", "json/.hidden.json", "json/README.md",
                           "csv/2.csv", "csv/1.csv", "json/b.jsonl.lft.rows"})
    dir.write(name, kRow);
  EXPECT_EQ(names(dir, "/json"), (Names{"/json/a.json", "/json/b.jsonl"}));
  EXPECT_EQ(names(dir, "/csv"), (Names{"/csv/1.csv", "/csv/2.csv"}));
  dir.write("json/c.csv", kRow);
  EXPECT_LFT_ERROR(ErrorKind::kInput, "several kinds of data files", names(dir, "/json"));
  dir.write("splits/train.json", kRow);
  dir.write("splits/test.json", kRow);
  EXPECT_LFT_ERROR(ErrorKind::kInput, "several splits", names(dir, "/splits"));
  EXPECT_TRUE(names(dir).empty());  // no data file
}

/// Otherwise test data is trained on without notice.
TEST(DataFiles, FilesOfAnyKindOfSeveralSplitsAreRefused) {
  const TempDir dir;
  const std::vector<Names> splits = {{"train.tar", "val.tar"},
                                     {"train-000000.tar", "test-000000.tar"},
                                     {"train_0.TAR", "Validation_0.tar"},
                                     {"train1.tar", "test1.tar"},
                                     {"train.parquet", "test.parquet"},
                                     {"train-0001.parquet", "test-0001.parquet"},
                                     {"train-00000-of-00001.parquet", "test.parquet"},
                                     {"a-00000-of-00002.parquet", "b-00000-of-00002.parquet"},
                                     {"train 1.csv", "dev 1.csv"}};
  for (size_t i = 0; i < splits.size(); ++i) {
    const std::string folder = "s" + std::to_string(i);
    for (const std::string& name : splits[i]) dir.write(folder + "/" + name, kRow);
    EXPECT_LFT_ERROR(ErrorKind::kInput, "several splits", names(dir, "/" + folder));
  }
  const std::vector<Names> of_one = {{"0.TAR", "1.tar"},
                                     {"A.PARQUET", "b.parquet"},
                                     {"extra.tar", "train-0.tar", "train-1.tar"},
                                     {"testimony.tar", "train.tar"}};
  for (size_t i = 0; i < of_one.size(); ++i) {
    const std::string folder = "/o" + std::to_string(i);
    Names paths;
    for (const std::string& name : of_one[i]) {
      dir.write(folder.substr(1) + "/" + name, kRow);
      paths.push_back(folder + "/" + name);
    }
    EXPECT_EQ(names(dir, folder), paths);
  }
}

TEST(DataFiles, AnImageFolderNamesItsImagesInFileName) {
  const TempDir dir;
  const std::string jpg = "folder/pets/a.jpg";
  dir.write(jpg, "x");
  dir.write("folder/metadata.csv", "file_name,text,breed\npets/a.jpg,A cat.,persian\n");
  const std::vector<DataFile> files = data_files(dir.file("folder"));
  ASSERT_EQ(files.size(), 1U);
  EncodeOptions options = test::small_options();
  options.count_unknown = true;
  const test::ByteTokenizer tokenizer;
  const auto rows = open_dataset(dir.file("folder"), "", tokenizer, options);
  const Row row = rows->row(0);
  EXPECT_EQ(row.images, Names{"pets/a.jpg"});
  EXPECT_EQ(row.turns()[0].question, "<image>\n");
  EXPECT_EQ(row.turns()[0].answer, "A cat.");
  EXPECT_EQ(rows->image_paths(0), Names{dir.file(jpg)});
  dir.write("several/metadata.jsonl",
            R"({"file_names":["a.jpg","pets/b.jpg"],"question":"Q","answer":"A"})"
            "\n"
            R"({"file_name":"c.jpg","question":"R","answer":"B"})");
  const auto several = open_dataset(dir.file("several"), "", tokenizer, options);
  EXPECT_EQ(several->row(0).images, (Names{"a.jpg", "pets/b.jpg"}));
  EXPECT_EQ(several->row(0).turns()[0].question, "<image>\n<image>\nQ");
  EXPECT_EQ(several->row(1).images, Names{"c.jpg"});
  options.columns.names = {{"question", "q"}};  // of another source of the recipe
  EXPECT_EQ(open_dataset(dir.file("folder"), "", tokenizer, options)->size(), 1);
  dir.write("splits/train/metadata.jsonl", kRow);
  dir.write("splits/test/metadata.jsonl", kRow);
  EXPECT_LFT_ERROR(ErrorKind::kInput, "splits/test", names(dir, "/splits"));
  EXPECT_EQ(names(dir, "/splits/train"), Names{"/splits/train/metadata.jsonl"});
}

/// LLaMA-Factory's data/dataset_info.json, abridged.
constexpr char kInfo[] = R"({
  "alpaca": {"file_name": "alpaca.json"},
  "own": {"file_name": "own.json", "columns": {"prompt": "q", "response": "a", "images": "pics"}},
  "talk": {"file_name": "talk.json", "formatting": "sharegpt",
           "columns": {"messages": "messages", "images": "images"},
           "tags": {"role_tag": "role", "content_tag": "content", "user_tag": "user",
                    "assistant_tag": "assistant"}},
  "plain": {"file_name": "plain.json", "formatting": "sharegpt"},
  "folder": {"file_name": "parts"},
  "hub": {"hf_hub_url": "llamafactory/x"},
  "dpo": {"file_name": "dpo.json", "ranking": true,
          "columns": {"prompt": "instruction", "query": "input", "chosen": "good",
                      "rejected": "poor", "images": "pics"}},
  "talks": {"file_name": "talks.json", "ranking": true, "formatting": "sharegpt",
            "columns": {"messages": "turns", "chosen": "chosen", "rejected": "rejected"},
            "tags": {"role_tag": "who", "content_tag": "says", "user_tag": "u",
                     "assistant_tag": "a"}},
  "llava": {"file_name": "llava.json", "ranking": true, "formatting": "sharegpt"},
  "kto": {"file_name": "kto.json", "columns": {"prompt": "q", "response": "a", "kto_tag": "good"}},
  "rank": {"file_name": "dpo.json", "ranking": "yes"},
  "half": {"file_name": "dpo.json", "ranking": true, "columns": {"prompt": "q", "chosen": "good"}},
  "single": {"file_name": "dpo.json", "columns": {"prompt": "q", "rejected": "poor"}},
  "both": {"file_name": "dpo.json", "ranking": true,
           "columns": {"chosen": "good", "rejected": "poor", "kto_tag": "tag"}},
  "video": {"file_name": "v.json", "columns": {"prompt": "q", "videos": "videos"}},
  "part": {"file_name": "own.json", "num_samples": 5},
  "other": {"file_name": "own.json", "formatting": "weird"},
  "odd": {"file_name": "own.json", "columns": 3},
  "gone": {"file_name": "gone.json"}})";

class DatasetInfo : public testing::Test {
 protected:
  DatasetInfo() {
    dir_.write("dataset_info.json", kInfo);
    dir_.write("alpaca.json", R"([{"instruction":"I","input":"J","output":"A"}])");
    dir_.write("own.json", R"([{"q":"<image>Q","a":"A","pics":["p/a.png"],"input":"not used"}])");
    dir_.write("talk.json", R"([{"messages":[{"role":"user","content":"<image>Q"},)"
                            R"({"role":"assistant","content":"A"}],"images":["p/a.png"]}])");
    dir_.write("plain.json", R"([{"conversations":[{"from":"human","value":"Q"},)"
                             R"({"from":"gpt","value":"A"}]}])");
    dir_.write("parts/1.jsonl", "{\"instruction\":\"Q\",\"output\":\"A\"}\n");
    dir_.write("parts/2.jsonl", "{\"instruction\":\"R\",\"output\":\"B\"}\n");
    options_.count_unknown = true;
  }
  std::unique_ptr<Dataset> open(const std::string& name, const std::string& root = "") {
    return open_dataset(dir_.file("dataset_info.json" + (name.empty() ? "" : "#" + name)), root,
                        tokenizer_, options_);
  }
  std::string turn(const std::string& name, int64_t row = 0) {
    const text::Turn turn = open(name)->row(row).turns().at(0);
    return turn.question + "|" + turn.answer;
  }

  TempDir dir_;
  test::ByteTokenizer tokenizer_;
  EncodeOptions options_ = test::small_options();
};

TEST_F(DatasetInfo, NamesFilesColumnsAndTags) {
  EXPECT_EQ(turn("alpaca"), "I\nJ|A");
  EXPECT_EQ(turn("own"), "<image>Q|A");  // a column that is not named is not used
  EXPECT_EQ(turn("talk"), "<image>Q|A");
  EXPECT_EQ(turn("plain"), "Q|A");
  EXPECT_EQ(turn("folder", 1), "R|B");
  for (const char* name : {"own", "talk"}) {
    EXPECT_EQ(open(name)->row(0).images, Names{"p/a.png"});
    EXPECT_EQ(open(name)->image_paths(0), Names{dir_.file("p/a.png")});
    EXPECT_EQ(open(name, "/other")->image_paths(0), Names{"/other/p/a.png"});
  }
  options_.columns.names = {{"answer", "input"}};  // the recipe's names replace those of the file
  EXPECT_EQ(turn("own"), "<image>Q|not used");
}

TEST_F(DatasetInfo, ARankedSetHasPairsInItsColumnsOrMessages) {
  dir_.write("dpo.json", R"([{"instruction":"<image>Q","input":"J","good":"A","poor":"B",)"
                         R"("output":"not used","pics":["p/a.png"]}])");
  dir_.write("talks.json",
             R"([{"turns":[{"who":"u","says":"Q"}],)"
             R"("chosen":{"who":"a","says":"A"},"rejected":{"who":"a","says":"B"}}])");
  dir_.write("llava.json", R"([{"conversations":[{"from":"human","value":"Q"}],)"
                           R"("chosen":{"from":"gpt","value":"A"},)"
                           R"("rejected":{"from":"gpt","value":"B"}}])");
  options_.pairs = true;
  for (const auto& [name, question] : std::vector<std::array<std::string, 2>>{
           {"dpo", "<image>Q\nJ"}, {"talks", "Q"}, {"llava", "Q"}}) {
    const Row row = open(name)->row(0);
    ASSERT_TRUE(row.rejected) << name;
    for (const auto& [side, answer] : {std::pair(&row, "A"), std::pair(row.rejected.get(), "B")}) {
      ASSERT_EQ(side->turns().size(), 1u) << name;
      EXPECT_EQ(side->turns()[0].question, question) << name;
      EXPECT_EQ(side->turns()[0].answer, answer) << name;
    }
  }
  EXPECT_EQ(open("dpo")->row(0).rejected->images, Names{"p/a.png"});
  dir_.write("dpo.json", R"([{"instruction":"Q","good":"A","poor":null}])");
  EXPECT_LFT_ERROR(ErrorKind::kInput, "a pair without its rejected answer", open("dpo"));
  dir_.write("dpo.json", R"([{"instruction":"Q","good":"A","poor":{"from":"gpt","value":"B"}}])");
  EXPECT_LFT_ERROR(ErrorKind::kInput, "a pair in an unknown form", open("dpo"));
  dir_.write("talks.json",
             R"([{"chosen":{"who":"a","says":"A"},"rejected":{"who":"a","says":"B"}}])");
  EXPECT_LFT_ERROR(ErrorKind::kInput, "a pair of messages without a prompt", open("talks"));
  options_.pairs = false;
  EXPECT_LFT_ERROR(ErrorKind::kInput, "objective.name: dpo", open("llava"));
}

TEST_F(DatasetInfo, TheColumnOfKtoIsTheRowsTag) {
  const DataFile file = data_files(dir_.file("dataset_info.json#kto")).at(0);
  io::Json row = {{"q", "Q"}, {"a", "A"}, {"good", false}};
  rename_columns(row, file.columns);
  EXPECT_EQ(row, (io::Json{{"question", "Q"}, {"answer", "A"}, {"kto_tag", false}}));
}

TEST_F(DatasetInfo, WhatIsNotReadIsRefusedByName) {
  for (const auto& [name, piece] :
       std::vector<std::array<std::string, 2>>{{"", "dataset_info.json#alpaca"},
                                               {"alpacca", "write "},
                                               {"hub", "lft does not download"},
                                               {"rank", "neither true nor false"},
                                               {"half", "without a column of one of its answers"},
                                               {"single", "a data set of single answers"},
                                               {"both", "\"kto_tag\""},
                                               {"video", "a column that lft does not support"},
                                               {"part", "num_samples"},
                                               {"other", "alpaca, sharegpt or openai"},
                                               {"odd", "columns"},
                                               {"gone", "gone.json"}}) {
    EXPECT_LFT_ERROR(ErrorKind::kInput, piece, open(name));
  }
  EXPECT_LFT_ERROR(ErrorKind::kInput, "dataset_info.json#", data_files(dir_.path()));
  dir_.write("one/dataset_info.json", R"({"x": {"file_name": "x.json"}})");
  dir_.write("one/x.json", R"([{"instruction":"Q","output":"A"}])");
  EXPECT_EQ(data_files(dir_.file("one/dataset_info.json")).size(), 1U);
  EXPECT_EQ(names(dir_, "/one"), Names{"/one/x.json"});
  dir_.write("two/dataset_info.json", R"({"x": )");
  EXPECT_LFT_ERROR(ErrorKind::kInput, "two/dataset_info.json",
                   data_files(dir_.file("two/dataset_info.json#x")));
}

TEST(DataFiles, ANameOfTheHubIsRefusedWithTheCommandThatFetchesIt) {
  EXPECT_LFT_ERROR(ErrorKind::kInput,
                   "hf download HuggingFaceM4/ChartQA --repo-type dataset --local-dir data/ChartQA",
                   data_files("HuggingFaceM4/ChartQA"));
  EXPECT_LFT_ERROR(
      ErrorKind::kInput, "data/rows.json",
      open_dataset("data/rows.json", "", test::ByteTokenizer(), test::small_options()));
}

}  // namespace
}  // namespace lft::data_files_test
