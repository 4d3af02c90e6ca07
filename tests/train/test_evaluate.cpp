// What an evaluation asks and compares where rows are truncated or bad, and what a run makes of it.
#include <gtest/gtest.h>

#include "src/hf/model_dir.h"
#include "src/train/evaluate.h"
#include "src/train/trainer.h"
#include "train/run_files.h"
#include "train/tiny_run.h"

namespace lft {
namespace {

constexpr int64_t kMaxTokens = 120;  // bytes, and 16 positions of the image

nlohmann::json row(const std::string& id, const std::vector<Turn>& turns) {
  nlohmann::json conversations = nlohmann::json::array();
  for (const Turn& turn : turns) {
    conversations.push_back({{"from", "human"}, {"value", (conversations.empty() ? "<image>\n" : "") + turn.question}});
    conversations.push_back({{"from", "gpt"}, {"value", turn.answer}});
  }
  return {{"id", id}, {"image", "red0.bmp"}, {"conversations", conversations}};
}

const std::string kLong(200, 'x');

/// Whole rows, one that loses its second answer, and one that loses its only one.
std::string rows_file(const test::TinyRun& run) {
  const nlohmann::json rows = {row("whole", {{"What?", "red"}, {"Sure?", "yes"}}), row("no_second", {{"What?", "red"}, {kLong, "yes"}}),
                               row("unanswered_row", {{kLong, "red"}}), row("cut", {{"What?", kLong}, {"Sure?", "yes"}})};
  return run.dir().write("cut.json", rows.dump());
}

EvalResult evaluate_rows(const test::TinyRun& run, const std::string& file) {
  const ModelDir dir = ModelDir::open(run.model());
  const std::unique_ptr<Tokenizer> tokenizer = Tokenizer::load(run.model());
  const EncodeOptions encode = encode_options(run.model(), dir.config, *tokenizer, "llava-hf", "pad", kMaxTokens, nullptr);
  Llava model = load_llava(dir, at::kFloat, at::kCPU);
  const auto dataset = open_dataset(file, run.dir().file("images"), *tokenizer, encode);
  return evaluate(model, *dataset, *tokenizer, encode, {.batch_size = 3, .workers = 1, .max_new_tokens = 4}, at::kFloat);
}

TEST(Evaluate, AsksForTheLastAnswerThatTruncationLeft) {
  const test::TinyRun run;
  const EvalResult result = evaluate_rows(run, rows_file(run));
  ASSERT_EQ(result.records.size(), 4u);
  const std::vector<std::string> questions = {"Sure?", "<image>\nWhat?", "<image>\n" + kLong, "<image>\nWhat?"},
                                 references = {"yes", "red", "red", kLong};
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(result.records[i].question, questions[i]) << i;
    EXPECT_EQ(result.records[i].reference, references[i]) << i;
    EXPECT_EQ(result.records[i].answered, i != 2) << i;
    EXPECT_EQ(result.records[i].loss > 0, i != 2) << i;
  }
}

TEST(Evaluate, ARowWithoutAnAnswerCountsInNeitherMean) {
  const test::TinyRun run;
  const EvalResult all = evaluate_rows(run, rows_file(run));
  EXPECT_EQ(all.samples, 4);
  EXPECT_EQ(all.answered, 3);
  const EvalResult none =
      evaluate_rows(run, run.dir().write("none.json", nlohmann::json::array({row("unanswered_row", {{kLong, "red"}})}).dump()));
  EXPECT_EQ(none.samples, 1);
  EXPECT_EQ(none.answered, 0);
  EXPECT_EQ(none.supervised, 0);
  EXPECT_EQ(none.records[0].answer, "");
  EXPECT_EQ(none.loss, 0);
}

TEST(Evaluate, ARowWithoutAnAnswerLeavesARunItsReport) {
  const test::TinyRun run;
  Recipe recipe = run.recipe("out");
  recipe.data.eval = rows_file(run);
  recipe.data.max_tokens = kMaxTokens;
  ASSERT_EQ(train(recipe), 0);
  const std::string report = test::slurp(recipe.output_dir + "/report.html");
  EXPECT_NE(report.find("no_second"), std::string::npos);
  EXPECT_EQ(report.find("unanswered_row"), std::string::npos);
  EXPECT_EQ(test::events(recipe.output_dir, "eval").back()["samples"], 4);
}

TEST(Evaluate, ABadRowIsNamedOnceHoweverOftenItIsMet) {
  const test::TinyRun run;
  run.dir().write("held_out.json", nlohmann::json::array({row("good", {{"What?", "red"}}), row("bad", {{"<image>", "red"}})}).dump());
  Recipe recipe = run.recipe("out");
  recipe.data.eval = run.dir().file("held_out.json");
  recipe.data.on_bad_sample = "skip";
  recipe.train.eval_every_steps = 2;
  ASSERT_EQ(train(recipe), 0);
  EXPECT_EQ(test::events(recipe.output_dir, "eval").size(), 3u);
  const std::vector<Json> skipped = test::events(recipe.output_dir, "sample_skipped");
  ASSERT_EQ(skipped.size(), 1u);
  const std::string sample = skipped[0]["sample"];
  EXPECT_TRUE(sample.starts_with("data.eval: ")) << sample;
  EXPECT_NE(sample.find("bad"), std::string::npos) << sample;
}

}  // namespace
}  // namespace lft
