// report.html of a run: in progress, finished, stopped and failed, and the warnings that the
// terminal showed.
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <set>

#include "src/base/log.h"
#include "src/base/signals.h"
#include "src/train/run/run_page.h"
#include "src/train/run/sample_answers.h"
#include "src/train/run/trainer.h"
#include "train/run_files.h"

namespace lft::run_page_test {
using namespace lft::io;
using namespace lft::recipe;
using namespace lft::train;
namespace {

Json page_of(const Recipe& recipe) {
  const std::string page = test::slurp(recipe.output_dir + "/report.html"), start = "id=\"data\">";
  const size_t begin = page.find(start) + start.size();
  return Json::parse(page.substr(begin, page.find("</script>", begin) - begin));
}

Recipe with_answers(const test::TinyRun& run) {
  Recipe recipe = run.recipe("out");
  recipe.log.answers = 8;
  return recipe;
}

Json fact(const Json& page, const std::string& name) {
  for (const Json& each : page["facts"])
    if (each[0] == name) return each[1];
  return nullptr;
}

TEST(RunPage, AFinishedRunStartsWithWhatPeopleAsk) {
  const test::TinyRun run;
  Recipe recipe = with_answers(run);
  recipe.train.max_steps = 30;
  recipe.train.eval_every_steps = 10;
  ASSERT_EQ(train::train(recipe), 0);
  const Json page = page_of(recipe);
  EXPECT_EQ(page["state"], "finished");
  EXPECT_EQ(fact(page, "model"), recipe.model.path);
  EXPECT_EQ(fact(page, "data"), recipe.data.train.path);
  EXPECT_EQ(fact(page, "rows"), "12 to train on, 12 held out");
  EXPECT_EQ(fact(page, "learning rate"), "0.01 (cosine)");
  EXPECT_EQ(fact(page, "rank"), "4 (lora, alpha 8); projector trained whole");
  EXPECT_TRUE(fact(page, "steps").get<std::string>().starts_with("30 of 30, ")) << page["facts"];
  EXPECT_NE(fact(page, "time"), nullptr);
  EXPECT_TRUE(fact(page, "best figure").get<std::string>().starts_with("held-out loss "));
  EXPECT_TRUE(page["verdict"]["kind"] == "learnt" || page["verdict"]["kind"] == "still_falling")
      << page["verdict"];
  EXPECT_FALSE(page["answers"].empty());
  EXPECT_TRUE(page["answers"][0]["image"].get<std::string>().starts_with("data:image/png"))
      << "bitmaps are shown as PNG";
}

/// The page at step 0, then not again within a minute, and again afterwards.
TEST(RunPage, IsWrittenAtMostOnceAMinuteDuringTheRun) {
  const test::TinyRun run;
  const Recipe recipe = with_answers(run);
  make_dirs(recipe.output_dir);
  train::Run state = make_run(open_inputs(recipe));
  record_answers_before(state);
  double now = 1000;
  RunPage page(state, /*writes=*/true, [&] { return now; });
  page.refresh({});
  const Json first = page_of(recipe);
  EXPECT_EQ(first["state"], "running");
  EXPECT_EQ(first["verdict"]["text"], "In progress, before step 1 of 6.");
  ASSERT_EQ(first["answers"].size(), 8u);
  EXPECT_EQ(first["answers"][0]["question"], "What?");
  EXPECT_EQ(first["answers"][0]["reference"], "red");
  EXPECT_EQ(first["answers"][0]["answer"], nullptr);
  EXPECT_NE(first["answers"][0]["before"], "");
  EXPECT_NE(first["answers"][0]["image"], "");
  const std::string path = recipe.output_dir + "/report.html";
  std::filesystem::remove(path);
  now += 59;
  page.refresh({});
  EXPECT_FALSE(path_exists(path));
  now += 2;
  page.refresh({});
  EXPECT_TRUE(path_exists(path));
}

TEST(RunPage, AProcessThatDoesNotWriteTheRunWritesNoPage) {
  const test::TinyRun run;
  const Recipe recipe = with_answers(run);
  make_dirs(recipe.output_dir);
  train::Run state = make_run(open_inputs(recipe));
  RunPage page(state, /*writes=*/false);
  page.refresh({});
  EXPECT_TRUE(page.finish({}, report::RunState::kDone, /*answer=*/false));
  EXPECT_FALSE(path_exists(recipe.output_dir + "/report.html"));
}

TEST(RunPage, AStoppedRunSaysSoAndKeepsTheAnswersOfItsEvaluations) {
  const test::TinyRun run;
  Recipe recipe = with_answers(run);
  recipe.train.eval_every_steps = 2;
  install_signal_handlers();
  EXPECT_EQ(train::train(recipe, {.gradients_ready =
                                      [](int64_t step, Optimizer&) {
                                        if (step == 3) std::raise(SIGINT);
                                      }}),
            130);
  take_interrupt();
  const Json page = page_of(recipe);
  EXPECT_EQ(page["state"], "stopped");
  EXPECT_EQ(page["verdict"]["text"], "Stopped after step 3 of 6; --resume continues it.");
  ASSERT_EQ(page["answers"].size(), 8u);
  EXPECT_EQ(page["answers"][0]["answered_at"], 2);
  ASSERT_EQ(train::train(recipe, {.resume = true}), 0);
  EXPECT_EQ(page_of(recipe)["state"], "finished");
}

TEST(RunPage, AFailureOfARunIsItsVerdict) {
  const test::TinyRun run;
  Recipe recipe = with_answers(run);
  EXPECT_THROW(train::train(recipe, {.gradients_ready =
                                         [](int64_t step, Optimizer&) {
                                           if (step == 3) throw std::runtime_error("a lost card");
                                         }}),
               std::exception);
  const Json page = page_of(recipe);
  EXPECT_EQ(page["state"], "failed");
  EXPECT_EQ(page["verdict"]["text"], "Failed after step 2 of 6: a lost card.");
  EXPECT_EQ(page["answers"].size(), 8u) << "with the answers from before training";
}

TEST(RunPage, WarningsOfTheTerminalAreEventsAndAResumeDoesNotRepeatThem) {
  const test::TinyRun run;
  nlohmann::json rows = nlohmann::json::parse(test::slurp(run.dir().file("rows.json")));
  for (auto& row : rows) row["annotator"] = "x";
  run.dir().write("rows.json", rows.dump());
  Recipe recipe = with_answers(run);
  recipe.data.unknown_keys = "warn";
  recipe.train.max_steps = 3;
  warning("of an earlier run in this process");
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(train::train(recipe), 0);
  const std::string said = ::testing::internal::GetCapturedStderr();
  std::vector<Json> warnings = test::events(recipe.output_dir, "warning");
  ASSERT_FALSE(warnings.empty()) << said;
  std::set<std::string> texts;
  for (const Json& each : warnings) {
    EXPECT_TRUE(texts.insert(each["text"]).second) << each;
    EXPECT_NE(said.find("warning: " + each["text"].get<std::string>()), std::string::npos);
  }
  EXPECT_NE(warnings[0]["text"].get<std::string>().find("annotator"), std::string::npos);
  EXPECT_EQ(warnings[0]["step"], 0);
  const Json event = page_of(recipe)["events"][0];
  EXPECT_EQ(event["name"], "warning");
  EXPECT_EQ(event["alarm"], true);
  recipe.train.max_steps = 5;
  EXPECT_EQ(train::train(recipe, {.resume = true}), 0);
  int told = 0;
  for (const Json& each : test::events(recipe.output_dir, "warning"))
    told += each["text"] == warnings[0]["text"] ? 1 : 0;
  EXPECT_EQ(told, 1);
}

}  // namespace
}  // namespace lft::run_page_test
