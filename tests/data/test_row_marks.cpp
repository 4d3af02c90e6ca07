// Texts of a row with a special meaning, such as placeholders.
#include <gtest/gtest.h>

#include "data/fixtures.h"
#include "kernels/common/error.h"
#include "src/base/errors.h"
#include "src/data/encode.h"
#include "src/data/rows/row_reader.h"
#include "support/expect_error.h"

namespace lft::row_marks_test {
using namespace lft::data;
using namespace lft::io;
namespace {

Json talk() {
  return Json::parse(
      R"({"conversations":[{"from":"human","value":"Q"},{"from":"gpt","value":"A"}]})");
}
ReadRow read(const Json& row, bool counts = false) {
  return read_row(row.dump(), "d.json[3]", 3, {.count_marks = counts});
}
std::string read_refusal(const Json& row) {
  const ReadRow found = read(row);
  return found.bad ? format_error(*found.bad) : "read";
}
void expect_holds(const std::string& text, const std::vector<std::string>& pieces) {
  for (const std::string& piece : pieces)
    EXPECT_NE(text.find(piece), std::string::npos) << piece << " in\n" << text;
}

TEST(RowMarks, PlaceholdersOfOtherToolsInRowsWithoutAnImage) {
  for (const char* mark : {"<img>a.png</img>",
                           "<image_1>",
                           "<image 1>",
                           "<image1>",
                           "<|image_1|>",
                           "<|image|>",
                           "<ImageHere>",
                           "<Img><ImageHere></Img>",
                           "[IMG]",
                           "[IMG_1]",
                           "[image]",
                           "<IMAGE>",
                           "<Image>",
                           "< image >",
                           "<image/>",
                           "<image-placeholder>",
                           "<image_placeholder>",
                           "<IMG_CONTEXT>",
                           "<!-- image -->",
                           "<__media__>",
                           "![](a.png)",
                           "![a cat](<my cat.JPG>)",
                           "![x](sub/a.webp \"title\")",
                           "![](data:image/png;base64,iVBORw0=)"}) {
    Json row = talk();
    row["conversations"][0]["value"] = std::string("see ") + mark + "\nWhat is it?";
    expect_holds(read_refusal(row), {"a mark of another tool", "question 1", "no image in the row",
                                     "\"images\"", "data.special_tokens_in_text: text"});
    EXPECT_EQ(read(row, true).keys.unused,
              (std::set<std::string>{"placeholders of other tools in rows without an image"}))
        << mark;
    row["image"] = "a.png";  // then marks and images are counted
    EXPECT_FALSE(read(row).bad) << mark;
    Json system = talk();
    system["system"] = mark;
    EXPECT_TRUE(read(system).bad) << mark;
  }
}

/// If the tokenizer has them, data.special_tokens_in_text defines their meaning.
TEST(RowMarks, TokensOfOtherTokenizersAreWordsInARow) {
  for (const char* mark : {"<|vision_start|><|image_pad|><|vision_end|>", "<start_of_image>",
                           "<image_soft_token>", "<fake_token_around_image>"}) {
    Json json = talk();
    json["conversations"][0]["value"] = std::string("see ") + mark;
    EXPECT_FALSE(read(json).bad) << mark;
    EXPECT_EQ(read(json, true).keys.unused.size(), 1U) << mark;
    const Row row = read(json).row;
    EncodeOptions options = test::small_options();
    EXPECT_LFT_ERROR(ErrorKind::kInput, "which is no token of this tokenizer",
                     encode_row(row, "", test::ByteTokenizer(), options));
    options.count_marks = true;
    EXPECT_NO_THROW(encode_row(row, "", test::ByteTokenizer(), options));
  }
}

TEST(RowMarks, TextsAboutPicturesAreTexts) {
  for (const char* text : {"<image>\nWhat?",
                           "Use the <img> tag, or <img src=\"a.png\">",
                           "`<image_1>` is a token",
                           "```\n![](a.png)\n<img>a</img>\n```",
                           "Show ![Image](https://example.org/a.png)",
                           "![alt](path)",
                           "![](#top)",
                           "[image](https://example.org)",
                           "[Image 1](a.png)",
                           "an <imagination>",
                           "array[img_count]",
                           "<|im_start|>",
                           "<images.zip>",
                           "1 < 2 and [3]",
                           "![",
                           "![](",
                           "<",
                           "[",
                           "``",
                           "<image"}) {
    Json row = talk();
    row["conversations"][0]["value"] = text;
    const ReadRow found = read(row);
    EXPECT_FALSE(found.bad) << text << ": " << (found.bad ? found.bad->info().found : "");
    Json answer = talk();
    answer["conversations"][1]["value"] = std::string("![](a.png) ") + text;
    EXPECT_FALSE(read(answer).bad) << text;
  }
}

TEST(RowMarks, JsonTextsInMessagesAreNotTrainedOn) {
  const std::string parts = R"([{"type": "text", "text": "two"}])",
                    picture = R"( [{"type":"image_url","image_url":{"url":"a.png"}},)"
                              R"({"type":"text","text":"Say"}])";
  for (const char* key : {"conversations", "messages"}) {
    for (const auto& [question, answer] : std::vector<std::array<std::string, 2>>{
             {"Q", parts}, {picture, "A"}, {"\"Say two.\"", "\"two\""}, {"\"Q\"", parts}}) {
      const Json row = {{key,
                         {{{"role", "user"}, {"content", question}},
                          {{"role", "assistant"}, {"content", answer}}}}};
      expect_holds(read_refusal(row), {"a message that is a JSON text", "d.json[3]", "json.loads"});
      EXPECT_EQ(read(row, true).keys.unused, (std::set<std::string>{"JSON texts in messages"}));
    }
  }
  for (const char* answer :
       {"\"two\"", "[1, 2]", R"([{"type": "text", "bbox": [1, 2], "text": "two"}])",
        R"([{"bbox_2d": [1, 2, 3, 4], "label": "cat"}])", R"({"type": "text", "text": "two"})",
        "[]", "[{}]", "[\"a\"]", "[not JSON", "\"not", "[{\"type\": \"text\"}]"}) {
    Json row = talk();
    row["conversations"][1]["value"] = answer;
    EXPECT_FALSE(read(row).bad) << answer;
  }
}

/// The images of KEY.json in a tar file, by name.
bool ordered(const std::vector<std::string>& names) {
  std::vector<RowImage> members;
  for (const std::string& name : names)
    members.push_back({.name = "tar:" + name, .bytes = {}, .file = {}, .offset = 0, .size = 0});
  return !read_row(talk().dump(), "d.tar[0]", 0, {}, &members).keys.unordered;
}

TEST(RowMarks, ImagesOfATarFileThatAreSortedByNameAreNoticed) {
  EXPECT_FALSE(ordered({"k.0.png", "k.1.png", "k.10.png", "k.2.png"}));
  EXPECT_FALSE(ordered({"k.1.png", "k.0.png"}));
  EXPECT_FALSE(ordered({"k.page9.jpg", "k.page10.jpg", "k.page1.jpg"}));
  EXPECT_TRUE(ordered({"k.0.png", "k.1.png", "k.2.png", "k.10.png"}));
  EXPECT_TRUE(ordered({"k.00.png", "k.01.png", "k.02.png", "k.10.png"}));
  EXPECT_TRUE(ordered({"k.back.png", "k.10.png", "k.2.png"}));  // names that are not only numbers
  EXPECT_TRUE(ordered({"k.b.png", "k.a.png"}));
  EXPECT_TRUE(ordered({"k.png"}));
  EXPECT_TRUE(ordered({}));
}

TEST(RowMarks, AFileTellsHowManyRowsShowTheirImagesOutOfOrder) {
  FileFormat format;
  const RowKeys sound{.list = "messages", .role = "role", .text = "content"};
  RowKeys unordered = sound;
  unordered.unordered = true;
  format.add(sound, "d.tar[0]");
  format.add(unordered, "d.tar[1]");
  format.add(unordered, "d.tar[2]");
  testing::internal::CaptureStderr();
  format.log_summary("d.tar", 3, RowForm::kTar);
  expect_holds(testing::internal::GetCapturedStderr(),
               {"warning: d.tar: 2 rows show their images", "(d.tar[1])", "leading zeros"});
}

}  // namespace
}  // namespace lft::row_marks_test
