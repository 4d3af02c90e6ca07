// lft validate on planted faults, one at a time and all at once; and on healthy data, without
// findings.
#include <functional>

#include "debug/validate_fixture.h"
#include "src/data/dataset.h"
#include "src/data/encode.h"
#include "src/debug/data/validate_print.h"
#include "src/hf/model_dir.h"
#include "support/expect_error.h"
#include "support/tar_file.h"

namespace lft::validate_test {
using namespace lft::data;
using namespace lft::debug;
using namespace lft::hf;
using namespace lft::recipe;
using namespace lft::text;
namespace {

using test::golden_image;
using test::row;
using test::slurp;

class Validate : public test::DataTest {
 protected:
  static constexpr size_t kBad = 5;  // the row that a test corrupts
  /// The corrupted row's image becomes these bytes.
  void replace_image(const std::string& bytes) {
    run_.dir().write("images/" + image_name(), bytes);
  }
  std::string image_name() const { return json_row(kBad)["image"].get<std::string>(); }
  void replace_text(const std::string& question, const std::string& answer) {
    lines_[kBad] = row("row5", image_name(), question, answer).dump();
  }
  void expect_fault(DataFault fault, const std::string& reason) {
    const DataReport report = validate();
    expect_only(report, fault, {line(kBad)}, reason);
    if (report.first.contains(fault) && fault != DataFault::kRow &&
        fault != DataFault::kEmptyAnswer) {
      EXPECT_EQ(report.first.at(fault)[0].id, "row5");
    }
  }
};

TEST_F(Validate, HealthyDataHasNoProblem) {
  const DataReport report = validate();
  EXPECT_TRUE(report.counts.empty()) << data_report_text(report);
  EXPECT_EQ(report.errors() + report.warnings(), 0);
  ASSERT_EQ(report.files.size(), 1u);
  const DataFigures& figures = report.files[0];
  EXPECT_EQ(figures.rows, kRows);
  EXPECT_EQ(figures.images, kRows);
  EXPECT_EQ(report.image_files, kRows);
  EXPECT_EQ(report.decoded, kRows);
  EXPECT_EQ(figures.replies, kRows);
  EXPECT_EQ(figures.replies_with_eos, kRows);
  EXPECT_EQ(figures.malformed + figures.truncated + figures.without_labels + figures.labels_lost +
                figures.replies_cut,
            0);
}

TEST_F(Validate, MissingImage) {
  std::filesystem::remove(run_.dir().file("images/" + image_name()));
  expect_fault(DataFault::kMissingImage, image_name());
}

TEST_F(Validate, CutAndDamagedImages) {
  const std::string jpeg = golden_image("exif1.jpg"), png = golden_image("depth8_colour2.png");
  replace_image(jpeg);
  EXPECT_EQ(validate().errors(), 0);
  replace_image(jpeg.substr(0, jpeg.size() - 20));
  expect_fault(DataFault::kBrokenImage, "the jpeg image is cut or damaged");
  replace_image(png.substr(0, png.size() - 13));
  expect_fault(DataFault::kBrokenImage, "the png image is cut or damaged");
  std::string flipped = png;
  flipped[png.size() / 2] ^= 4;
  replace_image(flipped);
  expect_fault(DataFault::kBrokenImage, "the png image is cut or damaged");
}

TEST_F(Validate, FilesThatAreNoImages) {
  replace_image("");
  expect_fault(DataFault::kBrokenImage, "an empty file");
  replace_image("<!DOCTYPE html><title>404</title>");
  expect_fault(DataFault::kBrokenImage, "a web page");
  replace_image("GIF89a");
  expect_fault(DataFault::kBrokenImage, "damaged gif image");
  replace_image("8BPS");
  expect_fault(DataFault::kBrokenImage, "a Photoshop file");
}

TEST_F(Validate, AnImageTooNarrowToBeFitted) {
  replace_image(test::bmp(1, 20000, 1, 2, 3));
  expect_fault(DataFault::kBrokenImage, "too long and narrow: 1x20000");
  recipe_.data.image_fit = "crop";  // 16 x 320000 fits
  EXPECT_EQ(validate().errors(), 0);
}

/// An uncompressed TIFF of 16 bits of grey, all of one value.
std::string grey_tiff(uint16_t width, uint16_t height, uint16_t value) {
  const auto word = [](uint32_t number, int bytes) {
    std::string out;
    for (int i = 0; i < bytes; ++i) out += static_cast<char>(number >> (8 * i));
    return out;
  };
  const uint32_t pixels = 2u * width * height, entries = 9;
  std::string file = std::string("II*\0", 4) + word(8, 4) + word(entries, 2);
  for (const auto& [tag, number] :
       std::vector<std::pair<uint32_t, uint32_t>>{{256, width},
                                                  {257, height},
                                                  {258, 16},
                                                  {259, 1},
                                                  {262, 1},
                                                  {273, 8 + 2 + 12 * entries + 4},
                                                  {277, 1},
                                                  {278, height},
                                                  {279, pixels}})
    file += word(tag, 2) + word(4, 2) + word(1, 4) + word(number, 4);
  file += word(0, 4);
  for (uint32_t i = 0; i < pixels / 2; ++i) file += word(value, 2);
  return file;
}

TEST_F(Validate, AnImageOfSixteenBitsThatTurnsWhite) {
  replace_image(grey_tiff(20, 18, 40000));
  expect_fault(DataFault::kWhiteImage, image_name());
  expect_fault(DataFault::kWhiteImage, "what is above 255 is white: 100% of it");
  replace_image(grey_tiff(20, 18, 200));
  EXPECT_TRUE(validate().counts.empty()) << data_report_text(validate());
}

/// The square has 16 x 16 pixels, a patch 4 x 4.
TEST_F(Validate, AnImageThatTurnsIntoPadding) {
  replace_image(test::bmp(2000, 3, 1, 2, 3));
  expect_fault(DataFault::kNarrowImage, image_name() + "\" is 2000 x 3: padded, it is 0.024 of 16");
  recipe_.data.image_fit = "crop";
  expect_fault(DataFault::kNarrowImage, "cropped, 0.15% of it is left");
  replace_image(test::bmp(40, 10, 1, 2, 3));
  EXPECT_TRUE(validate().counts.empty()) << data_report_text(validate());
}

TEST_F(Validate, MoreMarksThanImages) {
  replace_text("<image>\n<image>\nWhat?", "red");
  expect_fault(DataFault::kMarks, "2 marks, 1 images");
}

TEST_F(Validate, AnImageWithoutAMark) {
  replace_text("What?", "red");
  expect_fault(DataFault::kMarks, "0 marks, 1 images");
}

TEST_F(Validate, AMarkInAnAnswer) {
  replace_text("<image>\nWhat?", "this <image>");
  expect_fault(DataFault::kMarks, "<image> in an answer");
}

TEST_F(Validate, NoSupervisedTokenIsLeft) {
  replace_text("<image>\n" + std::string(600, 'q'), "red");
  expect_fault(DataFault::kNoLabel, "5 supervised tokens are beyond data.max_tokens = 512");
}

TEST_F(Validate, ACutAnswerIsAWarning) {
  replace_text("<image>\nWhat?", std::string(600, 'a'));
  expect_fault(DataFault::kTruncated, "of 602 supervised tokens");
}

TEST_F(Validate, KeysThatAreNotUsedAreMalformedRowsUnlessCounted) {
  nlohmann::json spoilt = json_row(kBad);
  spoilt["sistem"] = "Be brief.";
  lines_[kBad] = spoilt.dump();
  EXPECT_TRUE(validate().counts.empty());
  recipe_.data.unknown_keys = "error";
  expect_fault(DataFault::kRow, "a key that lft does not use: \"sistem\"");
}

TEST_F(Validate, ASystemTextNeedsATemplateWithAPlaceForIt) {
  nlohmann::json spoilt = json_row(kBad);
  spoilt["system"] = "Be brief.";
  lines_[kBad] = spoilt.dump();
  EXPECT_TRUE(validate().counts.empty());
  recipe_.data.chat_template = "plain";
  expect_fault(DataFault::kRow, "a system text, for which the template has no place");
}

TEST_F(Validate, MaskedAnswersAreCountedAndNeedAnotherBesideThem) {
  nlohmann::json spoilt = json_row(kBad);
  nlohmann::json& talk = spoilt["conversations"];
  talk.push_back({{"from", "human"}, {"value", "Sure?"}});
  talk.push_back({{"from", "gpt"}, {"value", "yes"}});
  talk[1]["weight"] = 0;
  lines_[kBad] = spoilt.dump();
  const DataReport report = validate();
  EXPECT_TRUE(report.counts.empty()) << data_report_text(report);
  EXPECT_EQ(report.files.at(0).masked, 1);
  EXPECT_EQ(report.files.at(0).replies, kRows);
  EXPECT_NE(data_report_text(report).find(
                "  masked     1 more answer by weight 0 or loss false: excluded from the loss\n"),
            std::string::npos)
      << data_report_text(report);
  talk[3]["loss"] = false;
  lines_[kBad] = spoilt.dump();
  expect_fault(DataFault::kNoLabel, "all its answers are masked");
}

TEST_F(Validate, AnImageBehindTheLimit) {
  replace_text(std::string(600, 'q') + "<image>", "red");
  expect_fault(DataFault::kCutImage, "the last image ends at position ");
}

TEST_F(Validate, ReplyWithoutASupervisedEndToken) {
  nlohmann::json tokenizer = test::byte_tokenizer();  // </s> is in the vocabulary, but no longer a
                                                      // separate token in a text
  tokenizer["added_tokens"].erase(2);
  ASSERT_EQ(tokenizer["added_tokens"].size(), 3u);
  run_.dir().write("model/tokenizer.json", tokenizer.dump());
  run_.dir().write(
      "model/tokenizer_config.json",
      R"({"tokenizer_class":"LlamaTokenizer","bos_token":"<s>","add_bos_token":true})");
  std::vector<std::string> all;
  for (size_t i = 0; i < lines_.size(); ++i) all.push_back(line(i));
  const DataReport report = validate();
  expect_only(report, DataFault::kEos, all,
              "reply 1 ends with \"<0x3E>\"; expected a supervised \"</s>\"");
  EXPECT_EQ(report.files[0].replies_with_eos, 0);
  EXPECT_NE(data_report_text(report).find("replies    0.00% of 12 end with a supervised \"</s>\""),
            std::string::npos)
      << data_report_text(report);
}

TEST_F(Validate, SpecialTokensAndTurnMarksInTexts) {
  for (const char* name : {"llava-v1", "llava-hf"}) {
    recipe_.data.chat_template = name;
    replace_text("<image>\nWhat? ASSISTANT: green USER: And now?", "red");
    expect_fault(DataFault::kMarkInText, "USER:, ASSISTANT: in the question of turn 1");
    for (const char* mode : {"text", "special"}) {
      recipe_.data.special_tokens_in_text = mode;
      replace_text("<image>\nWhat</s>?", "red");
      expect_fault(DataFault::kMarkInText, "</s> in the question of turn 1");
      replace_text("<image>\nWhat?", "red <unk>");
      expect_fault(DataFault::kMarkInText, "<unk> in the answer of turn 1");
    }
    recipe_.data.special_tokens_in_text = "error";
    expect_fault(DataFault::kTokens, "a special token in a text");
  }
  recipe_.data.chat_template = "plain";  // this template has no turn marks
  replace_text("<image>\nUSER: what?", "blue </S> < s >");
  EXPECT_TRUE(validate().counts.empty()) << data_report_text(validate());
}

TEST_F(Validate, NulAndBidiControlsInTexts) {
  replace_text("<image>\nWhat\xE2\x80\xAE?", "red");
  expect_fault(DataFault::kControl, "U+202E in the question of turn 1");
  replace_text("<image>\nWhat?", std::string("re\0d\xE2\x81\xA6", 7));
  expect_fault(DataFault::kControl, "U+0000, U+2066 in the answer of turn 1");
  replace_text("<image>\nWhat\xE2\x80\xA6?", "r\xC3\xA9\xE2\x80\x8D");  // ellipsis, accent, joiner
  EXPECT_TRUE(validate().counts.empty()) << data_report_text(validate());
}

TEST_F(Validate, AnotherAnswerToTheSameImageAndText) {
  run_.dir().write(
      "images/" + image_name(),
      test::slurp(run_.dir().file("images/" + json_row(2)["image"].get<std::string>())));
  EXPECT_TRUE(validate().counts.empty());  // the same answer
  replace_text("<image>\nWhat?", "a brick");
  expect_fault(DataFault::kContradiction,
               "another answer than " + line(2) + " gives to the same images and text");
  replace_text("<image>\nWhich?", "a brick");
  EXPECT_TRUE(validate().counts.empty());
}

TEST_F(Validate, AnotherAnswerInPreparedData) {
  run_.dir().write(
      "images/" + image_name(),
      test::slurp(run_.dir().file("images/" + json_row(2)["image"].get<std::string>())));
  replace_text("<image>\nWhat?", "a brick");
  save();
  prepare();
  expect_only(validate_data(recipe_, 2), DataFault::kContradiction, {line(kBad)},
              "another answer than " + line(2));
}

TEST_F(Validate, OneAnswerForAllRows) {
  for (size_t i = 0; i < lines_.size(); ++i)
    lines_[i] =
        row(std::to_string(i), json_row(i)["image"].get<std::string>(), "<image>\nWhat?", "a toy")
            .dump();
  const DataReport report = validate();
  expect_only(report, DataFault::kOneAnswer, {recipe_.data.train.path},
              "all 12 rows have one answer");
  lines_[0] = row("0", json_row(0)["image"].get<std::string>(), "<image>\nWhat?", "a ball").dump();
  EXPECT_TRUE(validate().counts.empty());
}

/// Named like "red0.bmp": a row's image name contains its expected answer.
TEST_F(Validate, AnswersOfANeighbourByTheImagesNames) {
  for (const int shift : {1, -1}) {
    for (size_t i = 0; i < lines_.size(); ++i) {
      nlohmann::json moved = json_row(i);
      moved["conversations"][1]["value"] =
          std::vector<std::string>{"red", "green", "blue"}[(static_cast<int>(i) + 3 - shift) % 3];
      lines_[i] = moved.dump();
    }
    const DataReport report = validate();
    expect_only(report, DataFault::kShifted, {recipe_.data.train.path},
                shift == 1 ? "0 of 10 rows have an image named as their answer; with the answer of "
                             "the row after 10 of 10 do: the answers seem to be one row too late"
                           : "with the answer of the row before 10 of 10 do");
  }
}

/// Thirty rows of three images in random order, with uninformative names.
TEST_F(Validate, AnswersOfANeighbourByRepeatedImages) {
  const std::vector<std::string> pictures = {"red0.bmp", "green1.bmp", "blue2.bmp"};
  const std::string order = "012201120210011202102201021120";
  for (const size_t shift : {0, 1}) {
    lines_.clear();
    for (size_t i = 0; i < order.size(); ++i) {
      const char seen = order[(i + order.size() - shift) % order.size()];
      lines_.push_back(row(std::to_string(i), pictures[static_cast<size_t>(order[i] - '0')],
                           "<image>\nWhat?", std::string("thing ") + seen)
                           .dump());
    }
    const DataReport report = validate();
    EXPECT_EQ(report.counts.contains(DataFault::kShifted), shift == 1) << data_report_text(report);
    if (shift == 0) continue;
    EXPECT_NE(report.first.at(DataFault::kShifted)[0].reason.find(
                  "pairs of rows with the same images and text agree; with the answer of the row "
                  "after"),
              std::string::npos)
        << data_report_text(report);
  }
}

TEST_F(Validate, DuplicateIds) {
  nlohmann::json other = json_row(kBad);
  other["id"] = "row2";
  lines_[kBad] = other.dump();
  const DataReport report = validate();
  expect_only(report, DataFault::kDuplicateId, {line(kBad)}, "the id of " + line(2));
  EXPECT_EQ(report.first.at(DataFault::kDuplicateId)[0].id, "row2");
}

TEST_F(Validate, DuplicateRows) {
  nlohmann::json other = json_row(2);
  other["id"] = "row5";
  lines_[kBad] = other.dump();
  expect_fault(DataFault::kDuplicateRow, "the same turns and images as " + line(2));
}

TEST_F(Validate, EmptyAndMissingAnswers) {
  replace_text("<image>\nWhat?", " \n");
  expect_fault(DataFault::kEmptyAnswer, "an empty answer in conversations[1]");
  nlohmann::json other = json_row(kBad);
  other["conversations"].erase(1);
  lines_[kBad] = other.dump();
  expect_fault(DataFault::kEmptyAnswer, "no answer");
}

TEST_F(Validate, MalformedRows) {
  lines_[kBad].resize(lines_[kBad].size() / 2);
  expect_fault(DataFault::kRow, "");
  lines_[kBad] = R"(["a list"])";
  expect_fault(DataFault::kRow, "not a JSON object");
  lines_[kBad] = R"({"id": "row5"})";
  expect_fault(DataFault::kRow, "without a dialogue");
  lines_[kBad] = "{\"id\": \"\xff\"}";
  expect_fault(DataFault::kRow, "");
}

TEST_F(Validate, WrongTypes) {
  const auto spoil = [&](const std::function<void(nlohmann::json&)>& change,
                         const std::string& reason) {
    nlohmann::json other = json_row(2);
    change(other);
    lines_[kBad] = other.dump();
    expect_fault(DataFault::kRow, reason);
  };
  spoil([](nlohmann::json& row) { row["image"] = 5; }, "field \"image\" names no file: 5");
  spoil([](nlohmann::json& row) { row["conversations"] = "What?"; }, "has no messages");
  spoil([](nlohmann::json& row) { row["conversations"][1]["value"] = 7; },
        "a message without text: 7");
  spoil([](nlohmann::json& row) { row["conversations"][0]["from"] = "robot"; }, "unknown role");
  spoil([](nlohmann::json& row) { row["id"] = {1}; }, "field \"id\" is no id");
}

TEST_F(Validate, PathsOutsideImageRoot) {
  for (const std::string name : {"../rows.json", "/etc/passwd", "sub/../../rows.json"}) {
    nlohmann::json other = json_row(kBad);
    other["image"] = name;
    lines_[kBad] = other.dump();
    expect_fault(DataFault::kImagePath, "outside its folder");
  }
}

TEST_F(Validate, ABrokenImageIsAProblemOfEveryRowThatUsesIt) {
  nlohmann::json other = json_row(7);
  other["image"] = image_name();
  lines_[7] = other.dump();
  replace_image("BM");
  const DataReport report = validate();
  expect_only(report, DataFault::kBrokenImage, {line(kBad), line(7)}, image_name());
  EXPECT_EQ(report.image_files, kRows - 1);
  EXPECT_EQ(report.decoded, kRows - 2);
}

TEST_F(Validate, HeldOutRowsThatAreTrainedOn) {
  recipe_.data.eval =
      run_.dir().write("eval.jsonl", row("new", "red0.bmp", "<image>\nWhich?", "red").dump() +
                                         "\n" + lines_[3] + "\n");
  const DataReport report = validate();
  expect_only(report, DataFault::kTrainedOn, {recipe_.data.eval + ":2"},
              "the same turns and images as " + line(3));
  ASSERT_EQ(report.files.size(), 2u);
  EXPECT_EQ(report.files[1].rows, 2);
  EXPECT_EQ(report.image_files, kRows);  // a file named by both is read once
}

/// A picture's place in its file says nothing about it.
TEST_F(Validate, EmbeddedPicturesAreComparedByTheirBytes) {
  const auto tar = [&](const std::string& name, const std::vector<std::string>& pictures) {
    std::vector<std::pair<std::string, std::string>> members;
    for (size_t i = 0; i < pictures.size(); ++i) {
      const std::string key = std::to_string(i) + ".";
      members.emplace_back(key + "json", row(name + key, "", "<image>\nWhat?", "a colour").dump());
      members.emplace_back(key + "bmp", slurp(run_.dir().file("images/" + pictures[i] + ".bmp")));
    }
    return run_.dir().write(name, test::tar_file(members));
  };
  recipe_.data.train = tar("train.tar", {"red0", "green1", "red0"});
  recipe_.data.eval = tar("eval.tar", {"blue2", "red0", "red3"});
  const DataReport report = validate_data(recipe_, 2);
  const auto places = [&](DataFault fault) {
    std::vector<std::string> found;
    if (!report.first.contains(fault)) return found;
    for (const DataProblem& problem : report.first.at(fault)) found.push_back(problem.where);
    return found;
  };
  const std::string train = recipe_.data.train.path, &eval = recipe_.data.eval;
  EXPECT_EQ(places(DataFault::kDuplicateRow), std::vector{train + "[2]"});
  EXPECT_EQ(places(DataFault::kTrainedOn), std::vector{eval + "[1]"});
}

TEST_F(Validate, AnImageFileIsKnownByItsPath) {
  std::filesystem::create_symlink("red0.bmp", run_.dir().file("images/link.bmp"));
  nlohmann::json again = json_row(0);
  std::vector<std::string> places;
  for (const std::string& name :
       {std::string("./red0.bmp"), std::string("link.bmp"), run_.dir().file("images/red0.bmp")}) {
    again["id"] = name;
    again["image"] = name;
    places.push_back(line(lines_.size()));
    lines_.push_back(again.dump());
  }
  expect_only(validate(), DataFault::kDuplicateRow, places,
              "the same turns and images as " + line(0));
}

/// Prepared data has the pixels that a model sees, not the bytes of the files.
TEST_F(Validate, PreparedRowsAreComparedWithOthersByTheNamesOfTheirImages) {
  save();
  prepare();
  recipe_.data.eval = run_.dir().write("eval.jsonl", lines_[3] + "\n");
  expect_only(validate_data(recipe_, 2), DataFault::kTrainedOn, {recipe_.data.eval + ":1"},
              "the same turns and images as " + line(3));
}

TEST_F(Validate, AFileThatCannotBeReadLeavesTheOtherToBeScanned) {
  lines_[kBad].resize(lines_[kBad].size() - 1);
  save();
  recipe_.data.eval = recipe_.data.train.path;
  recipe_.data.train = run_.dir().write("cut.json", "[" + lines_[0] + ",\n" + lines_[1]);
  const DataReport report = validate_data(recipe_, 2);
  EXPECT_EQ(report.counts,
            (std::map<DataFault, int64_t>{{DataFault::kFile, 1}, {DataFault::kRow, 1}}))
      << data_report_text(report);
  EXPECT_EQ(report.first.at(DataFault::kFile)[0].where, recipe_.data.train.path + "[1]");
  EXPECT_EQ(report.first.at(DataFault::kRow)[0].where, line(kBad));
  EXPECT_EQ(report.files[0].key, "data.eval");
}

/// Text alone under the plain template: <s>, the word mark, a token per letter, </s>. Lengths 5 to
/// 24, two supervised tokens per row.
TEST_F(Validate, FiguresOfKnownLengths) {
  lines_.clear();
  for (int length = 1; length <= 20; ++length)
    lines_.push_back(
        row(std::to_string(length), "", std::string(length, 'q'), length % 2 == 0 ? "a" : "b")
            .dump());
  recipe_.data.chat_template = "plain";
  const DataFigures whole = validate().files[0];
  EXPECT_EQ(whole.lengths, (std::array<int64_t, 5>{5, 14, 22, 23, 24}));
  EXPECT_EQ(whole.longest, 24);
  EXPECT_EQ(whole.longest_where, line(19));
  EXPECT_EQ(whole.longest_id, "20");
  EXPECT_EQ(whole.tokens, 290);
  EXPECT_EQ(whole.supervised, 40);

  recipe_.data.max_tokens = 20;  // lengths 21 to 24: one loses </s>, three lose the letter too
  const DataReport report = validate();
  const DataFigures& cut = report.files[0];
  EXPECT_EQ(cut.lengths, whole.lengths);
  EXPECT_EQ(cut.tokens, 200 + 4 * 20);
  EXPECT_EQ(cut.supervised, 33);
  EXPECT_EQ(cut.truncated, 4);
  EXPECT_EQ(cut.labels_lost, 7);
  EXPECT_EQ(cut.replies_cut, 4);
  EXPECT_EQ(cut.without_labels, 3);
  EXPECT_EQ(cut.replies_with_eos, 16);
  EXPECT_NE(data_report_text(report).find("replies    80.00% of 20 end with a supervised \"</s>\"; "
                                          "4 are cut before it\n"),
            std::string::npos)
      << data_report_text(report);
  EXPECT_EQ(report.counts,
            (std::map<DataFault, int64_t>{{DataFault::kNoLabel, 3}, {DataFault::kTruncated, 1}}));
}

TEST_F(Validate, SeveralTurnsAreSeveralReplies) {
  nlohmann::json other = json_row(kBad);
  other["conversations"].push_back({{"from", "human"}, {"value", "Sure?"}});
  other["conversations"].push_back({{"from", "gpt"}, {"value", "Yes."}});
  lines_[kBad] = other.dump();
  for (const char* name : {"llava-v1", "llava-hf", "plain"}) {
    recipe_.data.chat_template = name;
    const DataReport report = validate();
    EXPECT_TRUE(report.counts.empty()) << name << data_report_text(report);
    EXPECT_EQ(report.files[0].replies, kRows + 1);
    EXPECT_EQ(report.files[0].replies_with_eos, kRows + 1);
  }
}

TEST_F(Validate, PreparedDataIsComparedWithItsRows) {
  save();
  prepare();
  const DataReport healthy = validate_data(recipe_, 2);
  EXPECT_TRUE(healthy.counts.empty()) << data_report_text(healthy);
  EXPECT_EQ(healthy.files[0].rows, kRows);
  EXPECT_EQ(healthy.image_files, 0);

  // One label of the first sample: -100 instead of its id, as if the answer's first token were not
  // supervised.
  save();
  prepare(/*skip_bad=*/false, [](int64_t index, Sample& sample) {
    if (index == 0)
      *std::ranges::find_if(sample.labels, [](int64_t each) { return each >= 0; }) = -100;
  });
  const DataReport report = validate_data(recipe_, 2);
  expect_only(report, DataFault::kPrepared, {line(0)}, "are not those of the row");
}

TEST_F(Validate, RowsThatWereBadWhenTheDataWasPrepared) {
  nlohmann::json other = json_row(kBad);
  other["image"] = "nowhere.png";
  lines_[kBad] = other.dump();
  save();
  prepare(/*skip_bad=*/true);
  const DataReport report = validate_data(recipe_, 2);
  expect_only(report, DataFault::kPrepared, {line(kBad)},
              "bad when the data was prepared: row5: cannot open a file");
  EXPECT_EQ(report.files[0].replies, kRows - 1);
}

/// Every row that encode_row refuses has an error, and no other row has: validate and train agree
/// on which rows cannot be trained on.
TEST_F(Validate, AllAtOnceAreAllNamedAndAgreeWithTraining) {
  std::filesystem::remove(run_.dir().file("images/" + json_row(0)["image"].get<std::string>()));
  run_.dir().write("images/" + json_row(1)["image"].get<std::string>(), "BM");
  lines_[2] = row("row2", json_row(2)["image"], "no mark", "red").dump();
  lines_[3] = "{";
  lines_[4] = row("row4", "../rows.json", "<image>\nWhat?", "blue").dump();
  lines_[5] = row("row5", "", "What?", "").dump();
  lines_[6] =
      row("row6", "", std::string(600, 'q') + "<image>", "a").dump();  // no image for the mark
  lines_[7] = row("row8", "", "a question", "an answer").dump();
  lines_[9] = row("row9", "", "a question", "an answer").dump();
  lines_[10] = row("row10", json_row(10)["image"], std::string(600, 'q') + "<image>", "a").dump();
  for (const char* policy : {"error", "skip"}) {
    recipe_.data.on_bad_sample = policy;
    const DataReport report = validate();
    const std::map<DataFault, int64_t> expected = {
        {DataFault::kRow, 1},       {DataFault::kEmptyAnswer, 1},  {DataFault::kMarks, 2},
        {DataFault::kImagePath, 1}, {DataFault::kMissingImage, 1}, {DataFault::kBrokenImage, 1},
        {DataFault::kCutImage, 1},  {DataFault::kDuplicateId, 1},  {DataFault::kDuplicateRow, 1}};
    EXPECT_EQ(report.counts, expected) << data_report_text(report);
    std::set<std::string> bad;
    for (const auto& [fault, problems] : report.first) {
      for (const DataProblem& problem : problems) {
        if (!is_warning(fault)) bad.insert(problem.where);
      }
    }
    const auto tokenizer = Tokenizer::load(recipe_.model.path);
    EncodeOptions options =
        encode_options(recipe_.model.path, ModelDir::config_only(recipe_.model.path).config,
                       *tokenizer, {{"llava-hf", "pad"}, 2048}, nullptr);
    options.skip_bad = true;
    const auto dataset =
        open_dataset(recipe_.data.train.path, recipe_.data.image_root, *tokenizer, options);
    for (int64_t i = 0; i < dataset->size(); ++i) {
      bool refused = false;
      try {
        dataset->get(i);
      } catch (const Error&) {
        refused = true;
      }
      EXPECT_EQ(bad.contains(line(static_cast<size_t>(i))), refused) << i;
    }
  }
}

/// With data.on_bad_sample: skip.
TEST_F(Validate, BadRowsThatTrainingSkipsDoNotStopIt) {
  lines_[3] = "{";
  lines_[5] = row("row5", "nowhere.png", "no mark", "red").dump();
  EXPECT_TRUE(validate().stops_training());
  recipe_.data.on_bad_sample = "skip";
  const auto stops = [&](int64_t max_bad) {
    recipe_.data.max_bad = max_bad;
    return validate().stops_training();
  };
  EXPECT_FALSE(stops(2));
  EXPECT_TRUE(stops(1));
  EXPECT_TRUE(validate().has_too_many_bad());
  const DataReport report = validate();
  EXPECT_EQ(report.files[0].bad, 2);
  EXPECT_EQ(report.errors_of_bad, report.errors());
  for (const auto& [fault, problems] : report.first)
    for (const DataProblem& problem : problems)
      EXPECT_EQ(problem.next.find("on_bad_sample"), std::string::npos) << problem.next;
  EXPECT_NE(data_report_text(report).find("2 bad rows by data.on_bad_sample: skip"),
            std::string::npos);
  lines_ = {"{", "{}"};  // no row is left
  EXPECT_TRUE(stops(9));
  EXPECT_FALSE(validate().has_too_many_bad());
}

TEST_F(Validate, APreparedBadRowIsSkipped) {
  lines_[3] = "{";
  save();
  prepare(/*skip_bad=*/true);
  EXPECT_TRUE(validate_data(recipe_, 2).stops_training());
  recipe_.data.on_bad_sample = "skip";
  EXPECT_FALSE(validate_data(recipe_, 2).stops_training());
}

TEST_F(Validate, OneRowMayHaveSeveralProblems) {
  nlohmann::json other = row("row2", "nowhere.png", "no mark", "red");
  lines_[kBad] = other.dump();
  const DataReport report = validate();
  const std::map<DataFault, int64_t> expected = {
      {DataFault::kMarks, 1}, {DataFault::kMissingImage, 1}, {DataFault::kDuplicateId, 1}};
  EXPECT_EQ(report.counts, expected) << data_report_text(report);
}

TEST_F(Validate, TheNumberOfThreadsChangesNothing) {
  std::filesystem::remove(run_.dir().file("images/" + image_name()));
  lines_[3] = "{";
  lines_[8] = lines_[7];
  const auto without_timing = [&](int64_t workers) {
    nlohmann::json json = data_report_json(validate(workers));
    json.erase("timing");
    return json.dump();
  };
  const std::string alone = without_timing(1);
  EXPECT_NE(alone.find("missing_image"), std::string::npos);
  for (const int64_t workers : {2, 5, 64}) EXPECT_EQ(without_timing(workers), alone) << workers;
}

TEST_F(Validate, CountsStayExactWhereTheListIsCut) {
  lines_.clear();
  for (int i = 0; i < 250; ++i)
    lines_.push_back(
        row(std::to_string(i), "none" + std::to_string(i) + ".png", "<image>", "a").dump());
  const DataReport report = validate();
  EXPECT_EQ(report.counts.at(DataFault::kMissingImage), 250);
  ASSERT_EQ(report.first.at(DataFault::kMissingImage).size(), DataReport::kKept);
  EXPECT_EQ(report.first.at(DataFault::kMissingImage).back().where, line(99));
  EXPECT_NE(data_report_text(report).find("  and 245 more\n"), std::string::npos)
      << data_report_text(report);
}

TEST_F(Validate, ModelAndRecipeProblemsAreErrorsOfTheirOwn) {
  save();
  Recipe other = recipe_;
  other.model.path = run_.dir().file("nowhere");
  EXPECT_LFT_ERROR(ErrorKind::kInput, "nowhere", validate_data(other, 1));
  other = recipe_;
  other.data.chat_template = "chatty";
  EXPECT_LFT_ERROR(ErrorKind::kUsage, "unknown template", validate_data(other, 1));
}

}  // namespace
}  // namespace lft::validate_test
