#include <gtest/gtest.h>

#include "src/data/dataset.h"
#include "src/data/rows/row_reader.h"
#include "support/expect_error.h"
#include "support/temp_dir.h"

namespace lft::rows_test {
using namespace lft::data;
using namespace lft::io;
namespace {

using test::TempDir;

std::vector<Row> rows_of(const std::string& text) {
  const TempDir dir;
  return read_rows(dir.write("data.json", text));
}

/// The rows' error, which must contain `place` (after the file's name) and `piece`.
void expect_bad(const std::string& text, const std::string& place, const std::string& piece) {
  const TempDir dir;
  const std::string path = dir.write("data.json", text);
  const std::string block = test::thrown_text(
      ErrorKind::kInput, [&] { read_rows(path); }, __FILE__, __LINE__);
  EXPECT_NE(block.find("data.json" + place), std::string::npos) << block;
  EXPECT_NE(block.find(piece), std::string::npos) << block;
  EXPECT_NE(block.find("\n  next: "), std::string::npos) << block;
}

constexpr const char* kGood =
    R"({"id":"a","image":"x.png","conversations":[{"from":"human","value":"<image>\nQ"},)"
    R"({"from":"gpt","value":"A"}]})";

TEST(Rows, LlavaArray) {
  const auto rows = rows_of(std::string("[") + kGood +
                            R"(, {"id": 7, "images": ["p.png", "q.png"], "conversations": [
    {"from": "human", "value": "<image><image>\nwhich, ] } or \" ?"}, {"from": "gpt", )"
                            R"("value": "the [first]"},
    {"from": "human", "value": "sure?"}, {"from": "gpt", "value": "yes"}]},
    {"conversations":[{"from":"human","value":"Q"},{"from":"gpt","value":"A"}]} ] )");
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0].id, "a");
  EXPECT_EQ(rows[0].images, std::vector<std::string>{"x.png"});
  EXPECT_EQ(rows[0].turns()[0].question, "<image>\nQ");
  EXPECT_EQ(rows[1].id, "7");
  EXPECT_EQ(rows[1].turns()[0].question, "<image><image>\nwhich, ] } or \" ?");
  EXPECT_EQ(rows[1].turns()[1].answer, "yes");
  EXPECT_EQ(rows[1].images.size(), 2u);
  EXPECT_TRUE(rows[1].where.ends_with("data.json[1]"));
  EXPECT_EQ(rows[2].id, "2");
  EXPECT_TRUE(rows[2].images.empty());
}

/// json.dumps(row, indent=2) in sequence, and a list within an object.
TEST(Rows, ObjectsOfSeveralLinesAndAListWithinAnObjectAreRows) {
  const std::string spread =
      "{\n" + std::string(kGood).substr(1, std::string(kGood).size() - 2) + "\n}\n";
  const auto rows = rows_of(spread + "\n" + spread);
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[1].images, std::vector<std::string>{"x.png"});
  EXPECT_TRUE(rows[0].where.ends_with("data.json:1"));
  EXPECT_TRUE(rows[1].where.ends_with("data.json:5"));
  for (const std::string before :
       {"{\"data\": [", "{\n \"version\": \"1,]}\", \"n\": 2,\n\"rows\":["})
    EXPECT_EQ(rows_of(before + kGood + "," + kGood + "], \"more\": {}}").size(), 2u);
  EXPECT_EQ(rows_of(std::string(kGood)).size(), 1u);
}

/// As Python's json reads and writes them: a missing value.
TEST(Rows, NumbersThatAreNotFiniteAreMissing) {
  const std::string talk = R"("conversations":[{"from":"human","value":"NaN?"},)"
                           R"({"from":"gpt","value":"-Infinity\" NaN"}]})";
  const auto rows = rows_of("{\"image\": NaN, \"meta\": [NaN,-Infinity,Infinity]," + talk);
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_TRUE(rows[0].images.empty());
  EXPECT_EQ(rows[0].turns()[0].question, "NaN?");
  EXPECT_EQ(rows[0].turns()[0].answer, "-Infinity\" NaN");
}

TEST(Rows, AnImageFieldThatSaysNothingIsNone) {
  const std::string talk =
      R"("conversations":[{"from":"human","value":"Q"},{"from":"gpt","value":"A"}]})";
  for (const std::string none :
       {"\"image\":\"\"", "\"image\":null", "\"images\":[]", "\"images\":[null]",
        "\"images\":[\"\"]", "\"image\":\"\",\"images\":[null]",
        "\"image\":{\"path\":null,\"url\":\"\"}"})
    EXPECT_TRUE(rows_of("{" + none + "," + talk)[0].images.empty()) << none;
  EXPECT_EQ(rows_of("{\"image\":\"a.png\",\"images\":[]," + talk)[0].images,
            std::vector<std::string>{"a.png"});
  EXPECT_EQ(rows_of("{\"id\":1.0," + talk)[0].id, "1");
}

TEST(Rows, JsonLinesWithByteOrderMarkCrlfAndBlankLines) {
  const auto rows =
      rows_of("\xef\xbb\xbf" + std::string(kGood) + "\r\n\r\n" + kGood + "\r\n  \n" + kGood);
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_TRUE(rows[1].where.ends_with("data.json:3"));
  EXPECT_TRUE(rows[2].where.ends_with("data.json:5"));
}

TEST(Rows, ShareGptRolesAndEmptySystem) {
  const auto rows =
      rows_of(R"({"conversations":[{"from":"system","value":" "},{"from":"user","value":"Q"},)"
              R"({"from":"assistant","value":"A"}]}
{"conversations":[{"from":"human","value":"Q"},{"from":"chatgpt","value":"B"}]})");
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].turns()[0].answer, "A");
  EXPECT_EQ(rows[1].turns()[0].answer, "B");
}

TEST(Rows, OpenAiParts) {
  const auto rows =
      rows_of(R"([{"messages":[{"role":"user","content":[{"type":"text","text":"Look: "},)"
              R"({"type":"image_url","image_url":{"url":"a.png"}},
    {"type":"image","path":"b.png"},{"type":"text","text":"same?"}]},{"role":"assistant",)"
              R"("content":[{"type":"text","text":"No."}]}]},
    {"images":["c.png"],"messages":[{"role":"user","content":[{"type":"image"},{"type":"text",)"
              R"("text":"What?"}]},
      {"role":"assistant","content":"C"}]}])");
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].turns()[0].question, "Look: <image>\n<image>\nsame?");
  EXPECT_EQ(rows[0].images, (std::vector<std::string>{"a.png", "b.png"}));
  EXPECT_EQ(rows[0].turns()[0].answer, "No.");
  EXPECT_EQ(rows[1].turns()[0].question, "<image>\nWhat?");
  EXPECT_EQ(rows[1].images, std::vector<std::string>{"c.png"});
}

TEST(Rows, FormatNames) {
  const std::pair<std::string, std::string> formats[] = {
      {kGood, "format LLaVA"},
      {R"({"conversations":[{"role":"user","content":"Q"},{"role":"assistant","content":"A"}]})",
       "format ShareGPT"},
      {R"({"messages":[{"role":"user","content":"Q"},{"role":"assistant","content":"A"}]})",
       "format OpenAI messages"},
      {R"({"prompt":"Q","completion":"A"})", "rows of prompt, completion"},
      {R"({"prompt":[{"role":"user","content":"Q"}],)"
       R"("completion":[{"role":"assistant","content":"A"}]})",
       "format TRL prompt and completion"}};
  for (const auto& [row, format] : formats) {
    RowKeys keys;
    parse_row(parse_json(row, "x"), "x", 0, keys);
    EXPECT_EQ(keys.format(), format);
  }
}

TEST(Rows, FileErrors) {
  expect_bad("", "", "empty");
  expect_bad(" \n\t\n", "", "empty");
  expect_bad("[]", "", "no sample");
  expect_bad("id: image\n", "", "neither a JSON array nor JSON lines");
  expect_bad("id,image\n", "", "a table of text (CSV)");
  expect_bad(std::string("PK\3\4\0\0", 6), "", "a zip archive");
  expect_bad("\x80\4\x95", "", "a pickle of Python");
  expect_bad(std::string("\xff\xfe[\0{\0", 6), "", "text in UTF-16");
  expect_bad(std::string("[\0{\0", 4), "", "iconv -f UTF-16");
  expect_bad("{\n\"id\": 1,\n", ":1", "} after the last sample");
  expect_bad("{\n}\n,{}", ":3", "{, with which a sample begins");
  expect_bad(std::string("[") + kGood, "[0]", "end of the file");
  expect_bad(std::string("[") + kGood + ",", "[1]", "end of the file");
  expect_bad(std::string("[") + kGood + ",]", "[1]", "nothing before ]");
  expect_bad(std::string("[") + kGood + "] x", "[1]", "after the closing ]");
  expect_bad("[{\"a\": \"cut", "[0]", "end of the file");
  EXPECT_LFT_ERROR(ErrorKind::kInput, "gone.json", read_rows("/nonexistent/gone.json"));
}

TEST(Rows, LineErrors) {
  const std::string good = std::string(kGood) + "\n";
  expect_bad(good + "{\"id\": }\n", ":2", "");
  expect_bad(good + "{\"id\":\"\xff\"}\n", ":2", "");
  expect_bad(good + R"({"id":"a","id":"b"})", ":2", "");
  expect_bad(good + R"({"id":"a"})", ":2", "without a dialogue");
  expect_bad(good + R"("text")", ":2", "not a JSON object");
  expect_bad(good + R"({"conversations":[]})", ":2", "no messages");
  expect_bad(good + R"({"conversations":[{"from":"human"}]})", ":2", "\"value\" is missing");
  expect_bad(good + R"({"conversations":[{"from":"human","value":3}]})", ":2",
             "a message without text");
  expect_bad(good + R"({"conversations":[{"from":"cat","value":"x"}]})", ":2", "unknown role");
  expect_bad(good + R"({"conversations":[{"from":"human","value":"x"}]})", ":2", "no answer");
  expect_bad(
      good + R"({"conversations":[{"from":"human","value":"x"},{"from":"gpt","value":" "}]})",
      ":2: conversations[1]", "empty answer");
  expect_bad(
      good + R"({"conversations":[{"from":"gpt","value":"x"},{"from":"human","value":"x"}]})",
      ":2: conversations[0]", "roles out of order");
  expect_bad(
      good + R"({"conversations":[{"from":"human","value":"x"},{"from":"human","value":"x"}]})",
      ":2: conversations[1]", "roles out of order");
  expect_bad(
      good + R"({"messages":[{"role":"user","content":"Q"},{"role":"assistant","content":"A"}]})",
      ":2", "mixes two sample formats");
  expect_bad(good + R"({"messages":[], "conversations":[]})", ":2", "which contains the dialogue");
}

TEST(Rows, ImageErrors) {
  const std::string talk =
      R"("conversations":[{"from":"human","value":"Q"},{"from":"gpt","value":"A"}]})";
  expect_bad("{\"image\":\"a\",\"images\":[\"b\"]," + talk, ":1", "both \"image\" and \"images\"");
  expect_bad("{\"image\":3," + talk, ":1", "names no file");
  expect_bad("{\"images\":[\"a.png\", 3]," + talk, ":1", "names no file");
  expect_bad("{\"image\":\"https://example.org/a.png\"," + talk, ":1", "URL");
  expect_bad("{\"id\":[1]," + talk, ":1", "\"id\"");
  expect_bad("{\"id\":123456789012345678901234567890.0," + talk, ":1", "write the id in quotes");
  expect_bad(
      R"({"images":["a"],"messages":[{"role":"user","content":[{"type":"image","image":"b"}]},)"
      R"({"role":"assistant","content":"A"}]})",
      ":1", "both in");
  expect_bad(R"({"messages":[{"role":"user","content":"Q"},{"role":"assistant",)"
             R"("content":[{"type":"image","image":"b"}]}]})",
             ":1", "not the user's");
  expect_bad(R"({"messages":[{"role":"user","content":[{"type":"video"}]},{"role":"assistant",)"
             R"("content":"A"}]})",
             ":1", "unknown type");
}

TEST(Rows, NestingAndLongRowsAreBounded) {
  expect_bad("[" + std::string(100000, '[') + std::string(100000, ']') + "]", "[0]", "");
  expect_bad("{\"id\":\"" + std::string((64u << 20) + 1, 'x') + "\"}", ":1", "");
}

TEST(Rows, BadRowsKeepTheirPlaceWhenAsked) {
  const TempDir dir;
  const RowFile file =
      read_row_file(dir.write("d.jsonl", std::string(kGood) + "\n{}\nnot json\n" + kGood + "\n"),
                    {.keep_bad = true});
  ASSERT_EQ(file.rows.size(), 4u);
  ASSERT_EQ(file.bad.size(), 2u);
  EXPECT_EQ(file.rows[1].id, "1");
  EXPECT_TRUE(file.bad.at(2).info().where.find("d.jsonl:3") != std::string::npos);
  EXPECT_EQ(file.rows[3].turns()[0].answer, "A");
}

TEST(Rows, JsonRoundTrip) {
  const Row row{.id = "i",
                .where = "f:1",
                .conversation = {text::messages_of({{"q", "a"}, {"r", "b"}})},
                .images = {"x"}};
  const Row back = row_from_json(row_to_json(row), "x");
  EXPECT_EQ(row_to_json(back), row_to_json(row));
  EXPECT_LFT_ERROR(ErrorKind::kInput, "malformed", row_from_json(Json::object(), "x"));
}

}  // namespace
}  // namespace lft::rows_test
