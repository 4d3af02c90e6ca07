// Rows of columns give the samples of the same conversation as messages: question and answer under
// every name, captions, choices, Alpaca; names that the recipe maps; and what is refused.
#include <gtest/gtest.h>

#include "data/fixtures.h"
#include "src/data/encode.h"
#include "src/data/rows/row_reader.h"
#include "support/expect_error.h"

namespace lft::row_columns_test {
using namespace lft::data;
using namespace lft::io;
namespace {

ReadRow read(const Json& row, RowRules rules = {}) {
  return read_row(row.dump(), "d.json[3]", 3, rules);
}
std::string refusal(const Json& row, RowRules rules = {}) {
  const ReadRow found = read(row, std::move(rules));
  return found.bad ? format_error(*found.bad) : "read";
}
void expect_holds(const std::string& text, const std::vector<std::string>& pieces) {
  for (const std::string& piece : pieces)
    EXPECT_NE(text.find(piece), std::string::npos) << piece << " in\n" << text;
}

/// The same conversation as OpenAI's messages, with its images as parts before the question.
Json messages_of(const std::vector<std::string>& images, const std::vector<std::string>& texts,
                 const std::string& system = "") {
  Json list = Json::array();
  if (!system.empty()) list.push_back({{"role", "system"}, {"content", system}});
  for (size_t i = 0; i < texts.size(); ++i) {
    Json content = texts[i];
    if (i == 0 && !images.empty()) {
      content = Json::array();
      for (const std::string& name : images) content.push_back({{"type", "image"}, {"path", name}});
      if (!texts[i].empty()) content.push_back({{"type", "text"}, {"text", texts[i]}});
    }
    list.push_back({{"role", i % 2 == 0 ? "user" : "assistant"}, {"content", content}});
  }
  return {{"messages", list}};
}

/// The row's content, and its tokens and labels under LLaVA's form.
void expect_same(const Json& columns, const Json& messages, const RowRules& rules = {}) {
  const ReadRow got = read(columns, rules), want = read(messages);
  ASSERT_FALSE(got.bad) << format_error(*got.bad) << columns;
  ASSERT_FALSE(want.bad) << format_error(*want.bad) << messages;
  Row row = got.row;
  row.answers.clear();
  EXPECT_EQ(row_content(row), row_content(want.row));
  EncodeOptions options = test::small_options();
  const auto plans = fixed_plans(row.images.size(), options);
  const auto sample = [&](const Row& of) {
    const EncodedText text = encode_text(of, plans, test::ByteTokenizer(), options);
    return expand_images(text, of, plans, options);
  };
  EXPECT_EQ(sample(got.row).input_ids, sample(want.row).input_ids);
  EXPECT_EQ(sample(got.row).labels, sample(want.row).labels);
}

TEST(RowColumns, AQuestionAndAnAnswerUnderEveryName) {
  const Json want = messages_of({"a.png"}, {"What?", "A cat."});
  for (const char* question : {"question", "query", "instruction", "prompt"}) {
    for (const char* answer : {"answer", "response", "output", "completion", "label"}) {
      expect_same({{"image", "a.png"}, {question, "What?"}, {answer, "A cat."}}, want);
      expect_same({{"images", {"a.png"}}, {question, "What?"}, {answer, "A cat."}}, want);
    }
  }
  expect_same({{"question", "Q"}, {"answer", "A"}}, messages_of({}, {"Q", "A"}));
  expect_same({{"question", "Q"}, {"answer", 42}}, messages_of({}, {"Q", "42"}));
  expect_same({{"question", "Q"}, {"answer", "A"}, {"system", "Be."}, {"image", ""}},
              messages_of({}, {"Q", "A"}, "Be."));
  expect_same({{"question", "Q"}, {"answer", "A"}, {"images", {"a.png", "b.png"}}},
              messages_of({"a.png", "b.png"}, {"Q", "A"}));
  expect_same({{"question", "Q"}, {"answer", "A"}, {"images", "[\"a.png\", \"b.png\"]"}},
              messages_of({"a.png", "b.png"}, {"Q", "A"}));
}

TEST(RowColumns, AMarkInTheQuestionStaysWhereItIs) {
  const ReadRow row =
      read({{"question", "Look: <image>\nWhat?"}, {"answer", "A"}, {"image", "a.png"}});
  ASSERT_FALSE(row.bad);
  EXPECT_EQ(row.row.turns()[0].question, "Look: <image>\nWhat?");
}

TEST(RowColumns, Captions) {
  for (const char* key : {"caption", "text"}) {
    expect_same({{"image", "a.png"}, {key, "A cat."}}, messages_of({"a.png"}, {"", "A cat."}));
    expect_holds(refusal({{key, "A cat."}}), {"without an image", "d.json[3]", "data.columns"});
  }
  const ReadRow several = read({{"image", "a.png"}, {"caption", {"a", "b", "b"}}});
  ASSERT_FALSE(several.bad);
  EXPECT_EQ(several.row.turns()[0].answer, "b");
  EXPECT_EQ(several.row.answers, (std::vector<std::string>{"a", "b", "b"}));
}

TEST(RowColumns, Alpaca) {
  expect_same({{"instruction", "Translate."}, {"input", "un chat"}, {"output", "a cat"}},
              messages_of({}, {"Translate.\nun chat", "a cat"}));
  expect_same({{"instruction", "Hi"}, {"input", ""}, {"output", "Ho"}},
              messages_of({}, {"Hi", "Ho"}));
  expect_same({{"instruction", ""}, {"input", "Hi"}, {"output", "Ho"}},
              messages_of({}, {"Hi", "Ho"}));
  const Json with_history = {
      {"instruction", "C"},  {"input", ""},
      {"output", "D"},       {"system", "Be."},
      {"images", {"a.png"}}, {"history", Json::array({Json::array({"A", "B"})})}};
  expect_same(with_history, messages_of({"a.png"}, {"A", "B", "C", "D"}, "Be."));
}

TEST(RowColumns, ChoicesAreLettersInTheQuestion) {
  const Json want = messages_of({}, {"Which?\nA. a cat\nB. a dog\nC. 3", "B. a dog"});
  Json row = {{"question", "Which?"}, {"choices", {"a cat", "a dog", 3}}};
  for (const char* key : {"label", "answer"}) {
    for (const Json& right : {Json(1), Json(1.0), Json("1"), Json("B"), Json("b"), Json("(B)"),
                              Json("B."), Json("a dog"), Json(" a dog "), Json("B. a dog")}) {
      Json one = row;
      one[key] = right;
      expect_same(one, want);
    }
    for (const Json& wrong : {Json(3), Json(-1), Json(0.5), Json("D"), Json("a cow"),
                              Json(Json::array({1})), Json(true), Json("4"), Json("b.")}) {
      Json one = row;
      one[key] = wrong;
      expect_holds(refusal(one), {"names no choice", "numbers count from 0"});
    }
    Json twice = {{"question", "Which?"}, {"choices", {"1", "2", "3"}}};
    twice[key] = "1";
    expect_holds(refusal(twice), {"may mean two choices", "A or B"});
  }
  Json text = row;
  text["choices"] = "[\"a cat\", \"a dog\", 3]";  // as in a CSV file
  text["label"] = "1";
  expect_same(text, want);
  Json both = row;
  both["label"] = 1;
  both["answer"] = "a dog";
  expect_same(both, want);
  both["answer"] = "a cat";
  expect_holds(refusal(both), {"name two choices"});
  Json options = {{"question", "Which?"}, {"options", {"a cat", "a dog", 3}}, {"answer", "B"}};
  expect_same(options, want);
}

TEST(RowColumns, ALongIntegerKeepsItsDigits) {
  const std::string digits = "123456789012345678901234567890";
  const ReadRow long_one =
      read_row("{\"id\":" + digits + ",\"question\":-" + digits + ",\"answer\":" + digits + "}",
               "d.json[3]", 3, {});
  ASSERT_FALSE(long_one.bad) << format_error(*long_one.bad);
  EXPECT_EQ(long_one.row.id, digits);
  EXPECT_EQ(long_one.row.turns()[0].question, "-" + digits);
  EXPECT_EQ(long_one.row.turns()[0].answer, digits);
}

TEST(RowColumns, SeveralCorrectAnswersTeachTheMostFrequent) {
  const Json vqa = {{"question", "Q"},
                    {"answers", {{{"answer", "no"}}, {{"answer", "yes"}}, {{"answer", "yes"}}}}};
  const ReadRow read_vqa = read(vqa);
  ASSERT_FALSE(read_vqa.bad) << format_error(*read_vqa.bad);
  EXPECT_EQ(read_vqa.row.turns()[0].answer, "yes");
  EXPECT_EQ(read_vqa.row.answers.size(), 3U);
  const ReadRow chart = read({{"query", "Q"}, {"label", {"14"}}, {"image", "a.png"}});
  ASSERT_FALSE(chart.bad);
  EXPECT_EQ(chart.row.turns()[0].answer, "14");
  EXPECT_EQ(chart.row.answers, std::vector<std::string>{"14"});
  const ReadRow own = read({{"question", "Q"}, {"answer", "a"}, {"answers", {"b", "c"}}});
  EXPECT_EQ(own.row.turns()[0].answer, "a");
  EXPECT_EQ(own.row.answers, (std::vector<std::string>{"b", "c"}));
  const ReadRow numbers = read({{"question", "Q"}, {"answers", {3, 3, 2.5}}});
  ASSERT_FALSE(numbers.bad) << format_error(*numbers.bad);
  EXPECT_EQ(numbers.row.turns()[0].answer, "3");
  EXPECT_EQ(numbers.row.answers, (std::vector<std::string>{"3", "3", "2.5"}));
  EXPECT_TRUE(read({{"question", "Q"}, {"answer", "a"}, {"answers", ""}}).row.answers.empty());
}

TEST(RowColumns, TheRecipeNamesOthers) {
  const RowRules rules{.columns = {.names = {{"question", "q"}, {"answer", "a"}, {"image", "i"}}}};
  const Json want = messages_of({"a.png"}, {"What?", "A cat."});
  expect_same({{"q", "What?"}, {"a", "A cat."}, {"i", "a.png"}}, want, rules);
  expect_same({{"q", "What?"}, {"a", "A cat."}, {"i", "a.png"}, {"query", ""}}, want, rules);
  const RowRules swapped{.columns = {.names = {{"question", "answer"}, {"answer", "question"}}}};
  expect_same({{"answer", "What?"}, {"question", "A"}}, messages_of({}, {"What?", "A"}), swapped);
  const RowRules talk{.columns = {.names = {{"messages", "talk"}}}};
  Json row = messages_of({}, {"Q", "A"});
  expect_same({{"talk", row["messages"]}}, row, talk);
  expect_same({{"talk", {{{"from", "human"}, {"value", "Q"}}, {{"from", "gpt"}, {"value", "A"}}}}},
              row, talk);
  // A column that is replaced is counted as one that is not used.
  RowRules counts = rules;
  counts.count_unknown = true;
  const Json replaced = {{"q", "What?"}, {"a", "A"}, {"question", "old"}};
  EXPECT_EQ(read(replaced, counts).keys.unused, std::set<std::string>{"\"question\""});
  expect_holds(refusal(replaced, rules), {"a column that another one replaces", "\"question\""});
  // One of two candidates.
  const RowRules chosen{.count_unknown = true, .columns = {.names = {{"answer", "response"}}}};
  expect_same({{"prompt", "Q"}, {"response", "A"}, {"output", "B"}}, messages_of({}, {"Q", "A"}),
              chosen);
}

TEST(RowColumns, TagsOfLlamaFactoryNameRoles) {
  const RowRules rules{.columns = {.names = {{"messages", "talk"}},
                                   .tags = {{"role_tag", "who"},
                                            {"content_tag", "says"},
                                            {"user_tag", "me"},
                                            {"assistant_tag", "it"},
                                            {"system_tag", "sys"}}}};
  const Json row = {{"talk",
                     {{{"who", "sys"}, {"says", "Be."}},
                      {{"who", "me"}, {"says", "Q"}},
                      {{"who", "it"}, {"says", "A"}}}}};
  expect_same(row, messages_of({}, {"Q", "A"}, "Be."), rules);
}

/// Otherwise a model is trained on questions about pictures that it does not see.
TEST(RowColumns, AnImageInAnUnusedColumnIsNoticed) {
  const std::string png = "iVBORw0KGgo" + std::string(400, 'A');
  std::vector<Json> images = {{{"url", "a.png"}},
                              {{"path", "a.png"}, {"size", 3}},
                              Json::array({"a.png", "b.png"}),
                              Json::array({{{"path", "a.png"}}}),
                              "data:image/png;base64," + png,
                              png,
                              "https://host/a.jpg?width=3"};
  for (const char* ending : {"png", "JPG", "jpeg", "jpe", "jfif", "webp", "bmp", "gif", "tif",
                             "tiff", "ppm", "pgm", "pbm", "pnm", "avif", "heic", "heif", "jp2"})
    images.push_back(std::string("x/a.") + ending);
  const RowRules rules{.count_unknown = true};
  for (const Json& value : images) {
    const ReadRow found = read({{"question", "Q"}, {"answer", "A"}, {"photo", value}}, rules);
    ASSERT_TRUE(found.bad) << value;
    expect_holds(format_error(*found.bad), {"and the row has none", "{image: \"photo\"}"});
    EXPECT_FALSE(
        read({{"image", "c.png"}, {"question", "Q"}, {"answer", "A"}, {"photo", value}}, rules)
            .bad);
  }
  for (const Json& value :
       {Json("a.mp4"), Json("png"), Json({{"name", "a"}}), Json::array({1, "b"}),
        Json("What is in a.png?"), Json("https://host/page?image=a")})
    EXPECT_FALSE(read({{"question", "Q"}, {"answer", "A"}, {"photo", value}}, rules).bad) << value;
}

TEST(RowColumns, MessagesAreUsedInPlaceOfColumns) {
  Json row = messages_of({}, {"Q", "A"});
  row["answer"] = "B";
  row["question"] = "P";
  const ReadRow found = read(row, {.count_unknown = true});
  ASSERT_FALSE(found.bad);
  EXPECT_EQ(found.row.turns()[0].answer, "A");
  EXPECT_EQ(found.keys.unused, (std::set<std::string>{"\"answer\"", "\"question\""}));
}

TEST(RowColumns, WhatIsNotClearIsRefusedByName) {
  const RowRules counts{.count_unknown = true};
  struct Bad {
    Json row;
    std::vector<std::string> pieces;
  };
  const std::vector<Bad> bad = {
      {{{"question", "Q"}, {"query", "P"}, {"answer", "A"}},
       {"two columns that may be the question", "\"question\" and \"query\"",
        "data.columns: {question: question}"}},
      {{{"question", "Q"}, {"answer", "A"}, {"output", "B"}}, {"may be the answer"}},
      {{{"caption", "Q"}, {"text", "A"}, {"image", "a.png"}}, {"may be the caption"}},
      {{{"question", "Q"}, {"answer", ""}}, {"an empty answer", "d.json[3]: answer"}},
      {{{"question", "Q"}, {"answer", nullptr}}, {"an empty answer"}},
      {{{"question", ""}, {"answer", "A"}}, {"an empty question", "d.json[3]: question"}},
      {{{"question", "Q"}}, {"no answer", "keys \"question\"", "answer: NAME"}},
      {{{"question", "Q"}, {"answer", true}}, {"\"answer\" is no text", "true"}},
      {{{"question", 3.5}, {"answer", Json::object({{"a", 1}})}}, {"\"answer\" is no text"}},
      {{{"question", {"Q"}}, {"answer", "A"}}, {"\"question\" is no text"}},
      {{{"question", "Q"}, {"output", {"A", "B"}}}, {"\"output\" is no text"}},
      {{{"question", "Q"}, {"label", 3}}, {"no answer"}},
      {{{"question", "Q"}, {"choices", {"a"}}, {"label", 0}}, {"a wrong number of choices"}},
      {{{"question", "Q"}, {"choices", "['a', 'b']"}, {"label", 0}},
       {"\"choices\" is not a list", "json.dumps"}},
      {{{"question", "Q"}, {"choices", {{{"x", 1}}, {{"x", 2}}}}, {"label", 0}}, {"is no text"}},
      {{{"instruction", "Q"}, {"output", "A"}, {"history", {{"a"}}}}, {"has no turns"}},
      {{{"instruction", "Q"}, {"output", "A"}, {"history", Json::array({Json::array({"a", " "})})}},
       {"an empty answer"}},
      {{{"question", "Q"}, {"answer", "A"}, {"videos", {"a.mp4"}}},
       {"a key with a meaning that lft does not support", "videos"}},
      {{{"question", "Q"}, {"answer", "A"}, {"boxes", {1, 2}}}, {"does not support", "boxes"}},
      {{{"prompt", "Q"}, {"chosen", "A"}, {"rejected", "B"}}, {"does not support"}},
      {{{"Question", "Q"}, {"Answer", "A"}, {"img_path", "a.png"}},
       {"without a dialogue",
        "data.columns: {question: \"Question\", answer: \"Answer\", image: \"img_path\"}"}},
      {{{"question", "Q"}, {"answer", "A"}, {"photo", "a.JPG"}},
       {"a column names an image, and the row has none", "data.columns: {image: \"photo\"}"}},
      {Json::object(), {"without a dialogue"}}};
  for (const auto& [row, pieces] : bad) expect_holds(refusal(row, counts), pieces);
}

TEST(RowColumns, AnEvaluationReadsRowsWithoutAnAnswer) {
  const RowRules open{.open_questions = true};
  for (const Json& row : {Json{{"question", "Q"}, {"image", "a.png"}},
                          Json{{"question", "Q"}, {"image", "a.png"}, {"answer", ""}}}) {
    const ReadRow found = read(row, open);
    ASSERT_FALSE(found.bad) << format_error(*found.bad);
    ASSERT_EQ(found.row.messages().size(), 1U);
    EXPECT_EQ(found.row.messages()[0].text, "<image>\nQ");
  }
}

TEST(RowColumns, AFileSaysWhichColumnsItReads) {
  const test::TempDir dir;
  const std::string path =
      dir.write("d.jsonl",
                "{\"q\":\"Q\",\"answer\":\"A\",\"who\":\"x\"}\n"
                "{\"q\":\"Q\",\"answer\":\"A\",\"image\":\"a.png\",\"who\":\"y\"}\n");
  testing::internal::CaptureStderr();
  const RowRules rules{.count_unknown = true, .columns = {.names = {{"question", "q"}}}};
  read_row_file(path, rules);
  expect_holds(testing::internal::GetCapturedStderr(),
               {"2 samples, rows of question (column q), answer, image (JSON lines)",
                "warning: " + path + ": lft does not use \"who\" (2 rows)"});
  const RowRules typo{.count_unknown = true,
                      .columns = {.names = {{"question", "q"}, {"image", "imgae"}}}};
  EXPECT_LFT_ERROR(ErrorKind::kInput, "data.columns names a column that no row has",
                   read_row_file(path, typo));
  EXPECT_LFT_ERROR(ErrorKind::kInput, "mixes two sample formats",
                   read_rows(dir.write("m.jsonl",
                                       "{\"question\":\"Q\",\"answer\":\"A\"}\n"
                                       "{\"query\":\"Q\",\"answer\":\"A\"}\n")));
}

}  // namespace
}  // namespace lft::row_columns_test
