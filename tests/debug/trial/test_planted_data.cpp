// Planted faults of the data. Named by lft validate with file and line, or by the run that
// encounters them.
#include "debug/planted.h"
#include "debug/validate_fixture.h"
#include "src/debug/data/validate_print.h"
#include "src/train/run/trainer.h"

namespace lft::test::planted_data_test {
namespace {

constexpr size_t kBad = 5;  // the corrupted row: line 6

/// Twelve good rows, modified by `spoil`.
struct Rows : DataTest {
  void TestBody() override {}
  using DataTest::json_row;
  using DataTest::kRows;
  using DataTest::lines_;
  using DataTest::recipe_;
  using DataTest::run_;
  using DataTest::save;

  std::string image(size_t index) const {
    return "images/" + json_row(index)["image"].get<std::string>();
  }
  void replace_text(const std::string& question, const std::string& answer) {
    lines_[kBad] = row("row5", json_row(kBad)["image"], question, answer).dump();
  }
};

Told validate_rows(bool planted, const std::function<void(Rows&)>& spoil) {
  Rows rows;
  if (planted) spoil(rows);
  rows.save();
  return tell(rows.run_.dir().path(), [&] {
    const DataReport report = validate_data(rows.recipe_, 2);
    std::fputs(data_report_text(report).c_str(), stdout);
    return report.errors() > 0 ? static_cast<int>(ErrorKind::kInput) : 0;
  });
}

PlantedBug in_rows(const std::string& name, const std::string& planted, int code,
                   std::vector<std::string> says, const std::function<void(Rows&)>& spoil) {
  return {.name = name,
          .planted = planted,
          .command = "lft validate",
          .code = code,
          .says = std::move(says),
          .run = [spoil](bool plant) { return validate_rows(plant, spoil); }};
}

std::vector<PlantedBug> in_data() {
  const std::string place = "DIR/rows.jsonl:6 (id \"row5\"): ";
  return {
      in_rows("CorruptImage", "the image of line 6 is cut in its middle", 3,
              {"error  an image that cannot be decoded: 1\n  " + place,
               "the png image is cut or damaged"},
              [](Rows& rows) {
                const std::string png = golden_image("depth8_colour2.png");
                rows.run_.dir().write(rows.image(kBad), png.substr(0, png.size() / 2));
              }),
      in_rows("MissingImage", "the image file of line 6 is gone", 3,
              {"error  an image file that is not there: 1\n  " + place},
              [](Rows& rows) { std::filesystem::remove(rows.run_.dir().file(rows.image(kBad))); }),
      in_rows("ImageOutsideItsRoot", "the image path of line 6 climbs out of data.image_root", 3,
              {"error  an image path that is not opened: 1\n  " + place, "outside its folder"},
              [](Rows& rows) {
                rows.lines_[kBad] = row("row5", "../rows.json", "<image>\nWhat?", "red").dump();
              }),
      in_rows(
          "MorePlaceholdersThanImages", "line 6 has two <image> marks and one image", 3,
          {"error  <image> marks that do not fit the images: 1\n  " + place, "2 marks, 1 images"},
          [](Rows& rows) { rows.replace_text("<image>\n<image>\nWhat?", "red"); }),
      in_rows(
          "ImageWithoutPlaceholder", "line 6 has an image and no <image> mark", 3,
          {"error  <image> marks that do not fit the images: 1\n  " + place, "0 marks, 1 images"},
          [](Rows& rows) { rows.replace_text("What?", "red"); }),
      in_rows("AllLabelsMasked", "the question of line 6 fills data.max_tokens: no answer is left",
              3,
              {"error  a row without a supervised token: 1\n  " + place,
               "5 supervised tokens are beyond data.max_tokens = 512"},
              [](Rows& rows) { rows.replace_text("<image>\n" + std::string(600, 'q'), "red"); }),
      in_rows("TruncatedAnswer", "the answer of line 6 is longer than data.max_tokens", 0,
              {"warning  a row cut by data.max_tokens: 1\n  " + place,
               "of 602 supervised tokens among them"},
              [](Rows& rows) { rows.replace_text("<image>\nWhat?", std::string(600, 'a')); }),
      in_rows("EmptyAnswer", "the answer of line 6 is white space", 3,
              {"error  an empty or missing answer: 1\n  DIR/rows.jsonl:6",
               "an empty answer in conversations[1]"},
              [](Rows& rows) { rows.replace_text("<image>\nWhat?", " \n"); }),
      in_rows("MalformedRow", "line 6 is cut in its middle", 3,
              {"error  a malformed row: 1\n  DIR/rows.jsonl:6"},
              [](Rows& rows) { rows.lines_[kBad].resize(rows.lines_[kBad].size() / 2); }),
      in_rows("DuplicateId", "line 6 has the id of line 3", 0,
              {"warning  an id that an earlier row has: 1\n  DIR/rows.jsonl:6 (id \"row2\")",
               "the id of DIR/rows.jsonl:3"},
              [](Rows& rows) {
                nlohmann::json other = rows.json_row(kBad);
                other["id"] = "row2";
                rows.lines_[kBad] = other.dump();
              }),
      in_rows("DuplicateRow", "line 6 says what line 3 says", 0,
              {"warning  a row that says what an earlier one says: 1\n  " + place,
               "the same turns and images as DIR/rows.jsonl:3"},
              [](Rows& rows) {
                nlohmann::json other = rows.json_row(2);
                other["id"] = "row5";
                rows.lines_[kBad] = other.dump();
              }),
      in_rows("HeldOutRowInTheTrainingData", "data.eval repeats line 4 of data.train", 0,
              {"warning  a row of data.eval that data.train has too: 1\n  DIR/eval.jsonl:1",
               "as DIR/rows.jsonl:4"},
              [](Rows& rows) {
                rows.recipe_.data.eval = rows.run_.dir().write("eval.jsonl", rows.lines_[3] + "\n");
              }),
      in_rows(
          "UnsupervisedEos",
          "</s> is no token of its own in the tokenizer's file: no reply ends with the end token",
          3,
          {"error  a reply whose end token is not supervised: 12\n  DIR/rows.jsonl:1",
           "replies    0.00% of 12 end with a supervised"},
          [](Rows& rows) {
            nlohmann::json tokenizer = byte_tokenizer();
            tokenizer["added_tokens"].erase(2);
            rows.run_.dir().write("model/tokenizer.json", tokenizer.dump());
            rows.run_.dir().write(
                "model/tokenizer_config.json",
                R"({"tokenizer_class":"LlamaTokenizer","bos_token":"<s>","add_bos_token":true})");
          }),
      {.name = "CorruptImageInTheRun",
       .planted = "the image of line 6 is cut in its middle, data.on_bad_sample: error",
       .command = "lft train",
       .code = 3,
       .says = {"is cut or damaged", "id \"row5\""},
       .run =
           [](bool planted) {
             Rows rows;
             rows.recipe_.train.max_steps = 3;
             if (planted)
               rows.run_.dir().write(rows.image(kBad),
                                     golden_image("depth8_colour2.png").substr(0, 60));
             rows.save();
             return tell(rows.run_.dir().path(), [&] { return train::train(rows.recipe_); });
           }},
  };
}

}  // namespace

INSTANTIATE_TEST_SUITE_P(Data, Planted, ::testing::ValuesIn(in_data()), planted_name);

}  // namespace lft::test::planted_data_test
