// The answers in the report: spread over the held-out rows, before and after training.
#include <gtest/gtest.h>

#include <filesystem>

#include "src/train/run/sample_answers.h"
#include "src/train/run/trainer.h"
#include "train/run_files.h"

namespace lft::sample_answers_test {
using namespace lft::io;
using namespace lft::recipe;
using namespace lft::train;
namespace {

TEST(SampleAnswers, ASpreadOfTheRowsAndAllOfThemCounted) {
  const test::TinyRun files(40);
  Recipe recipe = files.recipe("out");
  recipe.log.answers = 8;
  make_dirs(recipe.output_dir);
  train::Run run = make_run(open_inputs(recipe));
  record_answers_before(run);
  const SampleAnswers answers = sample_answers(run);
  EXPECT_EQ(answers.asked, 40);
  EXPECT_EQ(answers.all, 40);
  EXPECT_EQ(answers.rows, "held-out rows");
  ASSERT_EQ(answers.shown.size(), 8u);
  for (size_t i = 0; i < answers.shown.size(); ++i) {
    EXPECT_EQ(answers.shown[i].id, "row" + std::to_string(5 * i));
    // Nothing was trained in between; alone a row's answer may end sooner, after its own reference.
    ASSERT_TRUE(answers.shown[i].before) << i;
    EXPECT_TRUE(answers.shown[i].answer.starts_with(*answers.shown[i].before)) << i;
    EXPECT_FALSE(answers.shown[i].before->empty()) << i;
  }
  std::filesystem::remove(recipe.output_dir + "/answers_before.json");
  EXPECT_FALSE(sample_answers(run).shown[0].before);
}

TEST(SampleAnswers, OfATrainedRunTheyDifferAndAResumeKeepsThoseFromBefore) {
  const test::TinyRun files(40);
  Recipe recipe = files.recipe("out");
  recipe.log.answers = 8;
  recipe.data.eval.clear();
  recipe.optim.lr = 3e-2;
  recipe.train.max_steps = 60;
  ASSERT_EQ(train::train(recipe, {.stop_after_step = 30}), 0);
  const std::string before = test::slurp(recipe.output_dir + "/answers_before.json");
  ASSERT_EQ(train::train(recipe, {.resume = true}), 0);
  EXPECT_EQ(test::slurp(recipe.output_dir + "/answers_before.json"), before);
  const std::string page = test::slurp(recipe.output_dir + "/report.html");
  EXPECT_NE(page.find("rows that it trained on (no data.eval)"), std::string::npos);
  Recipe again = recipe;
  again.lora.init_from = recipe.output_dir + "/adapter";
  again.output_dir = files.dir().file("again");
  train::Run run = make_run(open_inputs(again));
  const SampleAnswers answers = sample_answers(run);
  EXPECT_GT(answers.right, 20) << "three words to tell apart by colour, after 60 steps";
  const Json recorded = Json::parse(before);
  ASSERT_EQ(recorded.size(), 8u);
  EXPECT_NE(recorded[0]["answer"], answers.shown[0].answer);
}

TEST(SampleAnswers, NoRowIsAnsweredWithoutShownAnswers) {
  const test::TinyRun files;
  Recipe recipe = files.recipe("out");
  recipe.log.answers = 0;
  const AnswerCounts counts = answer_counts(make_run(open_inputs(recipe)));
  EXPECT_EQ(counts.shown + counts.at_end, 0);
  ASSERT_EQ(train::train(recipe), 0);
  EXPECT_EQ(Json::parse(test::slurp(recipe.output_dir + "/answers_before.json")), Json::array());
  EXPECT_NE(test::slurp(recipe.output_dir + "/report.html").find("\"answers\":[]"),
            std::string::npos);
}

}  // namespace
}  // namespace lft::sample_answers_test
