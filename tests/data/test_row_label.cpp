// Rows of KTO in the forms of TRL, LLaMA-Factory and ms-swift, and their mismatched answers.
#include <gtest/gtest.h>

#include "src/data/mismatched.h"
#include "src/data/rows/row_reader.h"
#include "support/expect_error.h"
#include "support/temp_dir.h"

namespace lft::row_label_test {
using namespace lft::data;
namespace {

using test::TempDir;

std::vector<Row> rows_of(const std::string& text, const std::string& name = "data.jsonl") {
  const TempDir dir;
  RowRules rules;
  rules.labelled = true;
  return read_row_file(dir.write(name, text + "\n"), rules).rows;
}

TEST(RowLabel, OfTheThreeToolsAreTheSameRow) {
  const std::string asked =
      R"({"role":"user","content":"<image>\nQ"},{"role":"assistant","content":"yes"})";
  for (const std::string& text : std::vector<std::string>{
           R"({"prompt":"<image>\nQ","completion":"yes","label":true,"images":["a.png"]})",
           R"({"prompt":"<image>\nQ","completion":"yes","label":1,"images":["a.png"]})",
           R"({"prompt":[{"role":"user","content":"<image>\nQ"}],)"
           R"("completion":[{"role":"assistant","content":"yes"}],"label":true,"image":"a.png"})",
           R"({"messages":[)" + asked + R"(],"label":true,"images":["a.png"]})",
           R"({"messages":[)" + asked + R"(],"kto_tag":true,"images":["a.png"]})",
           R"({"messages":[)" + asked + R"(],"kto_tag":true,"label":"True","images":["a.png"]})",
           R"({"conversations":[{"from":"human","value":"<image>\nQ"},)"
           R"({"from":"gpt","value":"yes"}],"kto_tag":true,"images":["a.png"]})",
       }) {
    const std::vector<Row> rows = rows_of(text);
    ASSERT_EQ(rows.size(), 1u) << text;
    EXPECT_EQ(rows[0].desirable, true) << text;
    EXPECT_EQ(rows[0].turns().back().answer, "yes") << text;
    EXPECT_EQ(rows[0].images, std::vector<std::string>{"a.png"}) << text;
    EXPECT_EQ(row_from_json(row_to_json(rows[0]), "here").desirable, true);
  }
  EXPECT_EQ(rows_of(R"({"prompt":"Q","completion":"no","label":false})")[0].desirable, false);
}

TEST(RowLabel, OfColumnsIsAWordOrANumber) {
  const std::vector<Row> rows =
      rows_of("prompt,completion,label\nQ,yes,True\nQ,no,false\nQ,maybe,0", "data.csv");
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0].desirable, true);
  EXPECT_EQ(rows[1].desirable, false);
  EXPECT_EQ(rows[2].desirable, false);
}

TEST(RowLabel, OnlyTheLastAnswerIsLearnt) {
  const Row row = rows_of(R"({"messages":[{"role":"user","content":"Q"},)"
                          R"({"role":"assistant","content":"a"},{"role":"user","content":"R"},)"
                          R"({"role":"assistant","content":"b"}],"label":false})")[0];
  EXPECT_FALSE(row.messages()[1].learnt);
  EXPECT_TRUE(row.messages()[3].learnt);
}

TEST(RowLabel, MalformedOnesAreNamed) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"prompt":"Q","completion":"yes"})", "without a label"},
      {R"({"prompt":"Q","completion":"yes","label":null})", "without a label"},
      {R"({"prompt":"Q","completion":"yes","label":"good"})", "neither true nor false"},
      {R"({"prompt":"Q","completion":"yes","label":2})", "neither true nor false"},
      {R"({"prompt":"Q","completion":"yes","label":-1})", "neither true nor false"},
      {R"({"prompt":"Q","completion":"yes","label":[true]})", "neither true nor false"},
      {R"({"prompt":"Q","completion":"yes","kto_tag":""})", "neither true nor false"},
      {R"({"prompt":"Q","completion":"yes","label":true,"kto_tag":false})", "contradict"},
      {R"({"prompt":"Q","chosen":"yes","rejected":"no","label":true})", "objective.name: dpo"},
      {R"({"prompt":"Q","chosen":"yes","rejected":"no"})", "a pair of answers"},
      {R"({"messages":[{"role":"user","content":"Q"}],"label":true})", "answer"},
      {R"({"prompt":"Q","completion":"","label":true})", "answer"},
      {R"({"label":true})", "without a dialogue"},
      {R"([true])", "object"},
  };
  for (const auto& [text, piece] : cases) {
    const std::string block = test::thrown_text(
        ErrorKind::kInput, [&, text = text] { rows_of(text); }, __FILE__, __LINE__);
    EXPECT_NE(block.find(piece), std::string::npos) << text << "\n" << block;
    EXPECT_NE(block.find("data.jsonl"), std::string::npos) << block;
  }
}

TEST(RowLabel, UnderSingleAnswersLlamaFactorysLabelIsRefusedByName) {
  const TempDir dir;
  const std::string path =
      dir.write("data.jsonl", R"({"prompt":"Q","completion":"yes","kto_tag":true})"
                              "\n");
  const std::string block = test::thrown_text(
      ErrorKind::kInput, [&] { read_rows(path); }, __FILE__, __LINE__);
  EXPECT_NE(block.find("objective.name: kto"), std::string::npos) << block;
}

constexpr int64_t kImage = 60;

/// `prompt` and `answer` ids; the prompt begins with the positions of an image.
Sample sample(const std::vector<int64_t>& prompt, const std::vector<int64_t>& answer) {
  Sample sample;
  sample.input_ids = {1, kImage, kImage};
  sample.input_ids.insert(sample.input_ids.end(), prompt.begin(), prompt.end());
  sample.labels.assign(sample.input_ids.size(), kIgnoreIndex);
  sample.input_ids.insert(sample.input_ids.end(), answer.begin(), answer.end());
  sample.labels.insert(sample.labels.end(), answer.begin(), answer.end());
  sample.input_ids.push_back(9);  // the line's end after an answer: not supervised
  sample.labels.push_back(kIgnoreIndex);
  sample.images.push_back({.shape = {.height = 1, .width = 1}, .chw = {1, 2, 3}, .positions = 2});
  return sample;
}

TEST(Mismatched, EachPromptHasTheAnswerOfTheNextRowOfTheGlobalBatch) {
  const std::vector<std::vector<Sample>> micro = {{sample({11}, {21, 22}), sample({12}, {23})},
                                                  {sample({13, 14}, {24, 25, 26})}};
  std::vector<Answer> answers;
  for (const std::vector<Sample>& rows : micro)
    for (const Sample& row : rows) answers.push_back(answer_of(row, kImage));
  const auto all = with_next_answers(micro, answers, 0, kImage, 100);
  ASSERT_EQ(all.size(), 2u);
  using Ids = std::vector<int64_t>;
  EXPECT_EQ(all[0][0].input_ids, (Ids{1, kImage, kImage, 11, 23, 9}));
  EXPECT_EQ(all[0][0].labels, (Ids{-100, -100, -100, -100, 23, -100}));
  EXPECT_EQ(all[0][1].input_ids, (Ids{1, kImage, kImage, 12, 24, 25, 26, 9}));
  EXPECT_EQ(all[1][0].input_ids, (Ids{1, kImage, kImage, 13, 14, 21, 22, 9}));
  EXPECT_EQ(all[1][0].images.size(), 1u);
  // The second process of two has the last micro-batch.
  const auto own = with_next_answers({micro[1]}, answers, 2, kImage, 100);
  EXPECT_EQ(own[0][0].input_ids, all[1][0].input_ids);
}

TEST(Mismatched, RowsAreCutAtTheLimitAndImagesBelongToThePrompt) {
  Sample first = sample({11}, {21, 22});
  first.input_ids.insert(first.input_ids.end() - 1, {kImage, kImage});  // an image in the answer
  first.labels.insert(first.labels.end() - 1, {kIgnoreIndex, kIgnoreIndex});
  first.images.push_back(first.images[0]);
  const Answer answer = answer_of(first, kImage);
  EXPECT_EQ(answer.ids, (std::vector<int64_t>{21, 22, 9}));
  const Sample cut = with_answer(first, answer_of(sample({}, {24, 25, 26}), kImage), kImage, 6);
  EXPECT_EQ(cut.input_ids, (std::vector<int64_t>{1, kImage, kImage, 11, 24, 25}));
  EXPECT_EQ(cut.images.size(), 1u);
  EXPECT_EQ(cut.supervised(), 2);
  EXPECT_EQ(with_answer(first, answer, kImage, 3).supervised(), 0);
}

}  // namespace
}  // namespace lft::row_label_test
