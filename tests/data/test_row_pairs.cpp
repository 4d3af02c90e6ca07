// Rows of preference pairs in the forms of TRL, LLaMA-Factory and ms-swift.
#include <gtest/gtest.h>

#include "src/data/rows/row_reader.h"
#include "support/expect_error.h"
#include "support/tar_file.h"
#include "support/temp_dir.h"

namespace lft::row_pairs_test {
using namespace lft::data;
namespace {

using test::TempDir;

Row pair_of(const std::string& text) {
  const TempDir dir;
  RowRules rules;
  rules.pairs = true;
  const std::vector<Row> rows = read_row_file(dir.write("data.jsonl", text), rules).rows;
  EXPECT_EQ(rows.size(), 1u);
  return rows.at(0);
}

/// Question and answer of the last turn.
std::pair<std::string, std::string> last_turn(const Row& side) {
  const text::Turn turn = side.turns().back();
  return {turn.question, turn.answer};
}

void expect_pair(const std::string& text, const std::string& question, const std::string& chosen,
                 const std::string& rejected) {
  const Row row = pair_of(text);
  ASSERT_TRUE(row.rejected) << text;
  EXPECT_EQ(last_turn(row), std::pair(question, chosen)) << text;
  EXPECT_EQ(last_turn(*row.rejected), std::pair(question, rejected)) << text;
  EXPECT_EQ(row.images, std::vector<std::string>{"a.png"}) << text;
  EXPECT_EQ(row.rejected->images, row.images) << text;
}

TEST(RowPairs, OfTheThreeToolsAreTheSameRow) {
  for (const char* text : {
           R"({"prompt":"<image>\nQ","chosen":"yes","rejected":"no","images":["a.png"]})",
           R"({"prompt":"<image>\nQ","chosen":"<image>\nQyes","rejected":"<image>\nQno",)"
           R"("image":"a.png"})",
           R"({"prompt":[{"role":"user","content":"<image>\nQ"}],)"
           R"("chosen":[{"role":"assistant","content":"yes"}],)"
           R"("rejected":[{"role":"assistant","content":"no"}],"images":["a.png"]})",
           R"({"chosen":[{"role":"user","content":"<image>\nQ"},)"
           R"({"role":"assistant","content":"yes"}],)"
           R"("rejected":[{"role":"user","content":"<image>\nQ"},)"
           R"({"role":"assistant","content":"no"}],"images":["a.png"]})",
           R"({"conversations":[{"from":"human","value":"<image>\nQ"}],)"
           R"("chosen":{"from":"gpt","value":"yes"},"rejected":{"from":"gpt","value":"no"},)"
           R"("images":["a.png"]})",
           R"({"messages":[{"role":"user","content":"<image>\nQ"},)"
           R"({"role":"assistant","content":"yes"}],"rejected_response":"no",)"
           R"("images":["a.png"]})",
           R"({"messages":[{"role":"user","content":"<image>\nQ"},)"
           R"({"role":"assistant","content":"yes"}],)"
           R"("rejected_messages":[{"role":"user","content":"<image>\nQ"},)"
           R"({"role":"assistant","content":"no"}],"images":["a.png"]})",
       })
    expect_pair(text, "<image>\nQ", "yes", "no");
}

TEST(RowPairs, BothSidesHaveTheImagesOfATarFileOrOfColumns) {
  const Row named = pair_of(R"({"question":"Q","chosen":"yes","rejected":"no","image":"a.png"})");
  EXPECT_EQ(last_turn(named), (std::pair<std::string, std::string>("<image>\nQ", "yes")));
  EXPECT_EQ(last_turn(*named.rejected), (std::pair<std::string, std::string>("<image>\nQ", "no")));
  for (const char* images : {"", R"(,"images":["png"])"}) {
    const Row row = pair_of(test::tar_file(
        {{"0.json", std::string(R"({"prompt":"Q","chosen":"yes","rejected":"no")") + images + "}"},
         {"0.png", "p"}}));
    EXPECT_EQ(last_turn(*row.rejected), (std::pair<std::string, std::string>("<image>\nQ", "no")));
    EXPECT_EQ(row.images, std::vector<std::string>{"tar:0.png"});
    EXPECT_EQ(row.rejected->images, row.images);
    EXPECT_EQ(row.rejected->inside.size(), 1u);
  }
}

TEST(RowPairs, TheRejectedAnswerMayHaveOtherImages) {
  const Row row = pair_of(R"({"messages":[{"role":"user","content":"<image>\nQ"},)"
                          R"({"role":"assistant","content":"yes"}],"rejected_response":"yes",)"
                          R"("images":["a.png"],"rejected_images":["b.png"]})");
  EXPECT_EQ(row.images, std::vector<std::string>{"a.png"});
  EXPECT_EQ(row.rejected->images, std::vector<std::string>{"b.png"});
}

TEST(RowPairs, OnlyTheLastAnswerIsLearnt) {
  const Row row =
      pair_of(R"({"conversations":[{"from":"human","value":"one"},{"from":"gpt","value":"1"},)"
              R"({"from":"human","value":"two"}],"chosen":{"from":"gpt","value":"2"},)"
              R"("rejected":{"from":"gpt","value":"3"}})");
  for (const Row* side : {&row, row.rejected.get()}) {
    ASSERT_EQ(side->turns().size(), 2u);
    EXPECT_FALSE(side->turns()[0].learnt);
    EXPECT_TRUE(side->turns()[1].learnt);
  }
}

TEST(RowPairs, APairSurvivesItsJson) {
  const Row row = pair_of(R"({"prompt":"Q","chosen":"yes","rejected":"no"})");
  const Row again = row_from_json(row_to_json(row), "here");
  ASSERT_TRUE(again.rejected);
  EXPECT_EQ(last_turn(again), last_turn(row));
  EXPECT_EQ(last_turn(*again.rejected), last_turn(*row.rejected));
}

TEST(RowPairs, MalformedOnesAreNamed) {
  const std::string asked = R"("conversations":[{"from":"human","value":"Q"}])";
  const std::pair<std::string, std::string> cases[] = {
      {R"({"prompt":"Q","chosen":"yes"})", "rejected"},
      {R"({"prompt":"Q","rejected":"no"})", "chosen"},
      {R"({"prompt":"Q","chosen":"yes","rejected":""})", "rejected"},
      {R"({"prompt":"Q","chosen":"","rejected":"no"})", "chosen"},
      {R"({"prompt":"Q","chosen":null,"rejected":"no"})", "chosen"},
      {R"({"prompt":"Q","chosen":"yes","rejected":["no"]})", "unknown form"},
      {R"({"prompt":"Q","chosen":1,"rejected":2})", "unknown form"},
      {R"({"prompt":"Q","chosen":true,"rejected":false})", "unknown form"},
      {R"({"chosen":"yes","rejected":"no"})", "without a prompt"},
      {R"({"prompt":["Q"],"chosen":"yes","rejected":"no"})", "without a prompt"},
      {R"({"prompt":"Q","chosen":[{"role":"assistant","content":"yes"}],)"
       R"("rejected":[{"role":"assistant","content":"no"}]})",
       "differ in form"},
      {R"({"chosen":{"from":"gpt","value":"yes"},"rejected":{"from":"gpt","value":"no"}})",
       "without a prompt"},
      {"{" + asked + R"(,"chosen":{"from":"gpt","value":"yes"}})", "rejected"},
      {"{" + asked +
           R"(,"chosen":{"from":"gpt","value":""},"rejected":{"from":"gpt","value":"n"}})",
       "answer"},
      {"{" + asked + R"(,"chosen":{"from":"gpt"},"rejected":{"from":"gpt","value":"n"}})", "value"},
      {"{" + asked +
           R"(,"chosen":{"from":"human","value":"y"},"rejected":{"from":"gpt","value":"n"}})",
       "roles out of order"},
      {"{" + asked + R"(,"chosen":"yes","rejected":"no"})", "without a prompt"},
      {R"({"messages":[{"role":"user","content":"Q"},{"role":"assistant","content":"y"}],)"
       R"("rejected_response":7})",
       "unknown form"},
      {R"({"messages":[{"role":"user","content":"Q"},{"role":"assistant","content":"y"}],)"
       R"("rejected_response":"n","rejected_messages":[{"role":"user","content":"Q"}]})",
       "both"},
      {R"({"messages":[{"role":"user","content":"Q"},{"role":"assistant","content":"y"}],)"
       R"("rejected_images":["b.png"]})",
       "rejected_images"},
      {R"({"rejected_response":"n"})", "chosen answer"},
      {R"({"prompt":"Q","completion":"yes"})", "objective.name: sft"},
      {R"({"messages":[{"role":"user","content":"Q"},{"role":"assistant","content":"y"}]})",
       "objective.name: sft"},
      {R"([1, 2])", "pairs"},
  };
  for (const auto& [text, piece] : cases) {
    const std::string block = test::thrown_text(
        ErrorKind::kInput, [&] { pair_of(text); }, __FILE__, __LINE__);
    EXPECT_NE(block.find(piece), std::string::npos) << text << "\n" << block;
    EXPECT_NE(block.find("data.jsonl"), std::string::npos) << block;
  }
}

TEST(RowPairs, UnderSingleAnswersAPairIsRefusedByName) {
  const TempDir dir;
  const std::string path =
      dir.write("data.jsonl", R"({"prompt":"Q","chosen":"yes","rejected":"no"})"
                              "\n");
  const std::string block = test::thrown_text(
      ErrorKind::kInput, [&] { read_rows(path); }, __FILE__, __LINE__);
  EXPECT_NE(block.find("objective.name: dpo"), std::string::npos) << block;
}

}  // namespace
}  // namespace lft::row_pairs_test
