// Runs on disk: their states, what differs between them, the best one, and the table of them.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "runs/folders.h"
#include "src/base/terminal.h"
#include "src/checkpoint/run_lock.h"
#include "src/runs/runs.h"
#include "src/runs/table.h"
#include "support/expect_error.h"

namespace lft::runs_test {
using namespace lft::runs;
using namespace lft::test;
namespace {

namespace fs = std::filesystem;

std::string all(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

#define EXPECT_PIECE(text, piece) \
  EXPECT_NE((text).find(piece), std::string::npos) << "no \"" << (piece) << "\" in:\n" << (text)

class Runs : public ::testing::Test {
 protected:
  std::string run(const std::string& name, double lr, const std::string& metrics) const {
    recipe::Recipe recipe = small_recipe(dir_.file(name));
    recipe.optim.lr = lr;
    return write_run(dir_, name, recipe, metrics);
  }
  TempDir dir_;
};

TEST_F(Runs, AreFoundBelowAFolderWithTheirStates) {
  run("runs/a", 1e-3, start_line(4) + step_line(4) + done_line(4, 4));
  run("runs/deep/b", 1e-3, start_line(4) + step_line(2));
  const std::string c =
      run("runs/c", 1e-3,
          start_line(4) + "{\"event\":\"stopped\",\"step\":1,\"reason\":\"a bad row\"}\n");
  const std::string d = run("runs/d", 1e-3, start_line(4) + step_line(1));
  fs::create_directories(dir_.file("runs/d/checkpoints/step-1"));
  fs::create_directories(dir_.file("runs/empty"));
  fs::create_directory_symlink(dir_.file("runs/a"), dir_.file("runs/link"));
  const checkpoint::RunLock lock(d);
  const std::vector<RunInfo> found = find_runs(dir_.file("runs/"));
  ASSERT_EQ(found.size(), 4u);
  std::vector<std::string> states;
  for (const RunInfo& each : found) states.emplace_back(state_word(each.state));
  EXPECT_EQ(states, (std::vector<std::string>{"done", "failed", "running", "stopped"}));
  EXPECT_EQ(found[2].path, d);
  EXPECT_PIECE(found[2].owner, "process " + std::to_string(getpid()));
  EXPECT_EQ(find_runs(c).size(), 1u);
  EXPECT_LFT_ERROR(ErrorKind::kUsage, "no such folder", find_runs(dir_.file("none")));
  EXPECT_LFT_ERROR(ErrorKind::kUsage, "not the folder of a run", read_run(dir_.file("runs/empty")));
}

TEST_F(Runs, TheBestIsByTheLossOrByTheMetricThatAllKeep) {
  const std::string eval = start_line(4) + eval_line(2, 3.0, ",\"exact_match\":0.2");
  run("a", 1e-3, eval + eval_line(4, 2.0, ",\"exact_match\":0.1"));
  run("b", 1e-4, eval + eval_line(4, 2.5, ",\"exact_match\":0.9"));
  run("c", 1e-5, start_line(4));
  std::vector<RunInfo> runs = find_runs(dir_.path());
  EXPECT_EQ(common_figure(runs), Figure());
  EXPECT_EQ(best_run(runs, common_figure(runs)), 0u);
  EXPECT_EQ(best_eval(runs[0], {})->step, 4);
  EXPECT_EQ(best_eval(runs[0], {}, /*last=*/3)->value, 3.0);
  EXPECT_FALSE(best_eval(runs[2], {}).has_value());
  for (RunInfo& each : runs) each.recipe->train.keep_best = "exact";
  const Figure exact = common_figure(runs);
  EXPECT_EQ(exact.name, "exact_match");
  EXPECT_EQ(best_run(runs, exact), 1u);
  // At its reference a model has all pairs right, as ties count.
  const Figure accuracy{.name = "reward_accuracy", .higher = true};
  const RunInfo pairs = read_run(
      run("d", 1e-4,
          start_line(4) +
              eval_line(2, 0.69,
                        ",\"reward_accuracy\":1.0,\"rewards_chosen\":0,\"rewards_rejected\":0") +
              eval_line(4, 0.6,
                        ",\"reward_accuracy\":0.7,\"rewards_chosen\":0.1,\"rewards_rejected\":0")));
  EXPECT_EQ(best_eval(pairs, accuracy)->step, 4);
  runs[0].recipe->train.keep_best = "anls";
  EXPECT_EQ(common_figure(runs), Figure()) << "they do not agree";
  EXPECT_EQ(best_run({}, exact), std::nullopt);
}

TEST_F(Runs, TheTableNamesOnlyWhatDiffersAndFits80Columns) {
  run("lr-a", 1e-3, start_line(400) + step_line(400) + eval_line(400, 2.0) + done_line(400, 400));
  run("lr-b", 1e-4, start_line(400) + step_line(120) + eval_line(100, 2.5));
  std::vector<RunInfo> runs = find_runs(dir_.path());
  for (RunInfo& each : runs) each.path = fs::path(each.path).filename();
  const std::vector<std::string> lines = runs_table(runs);
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[0], "run   state    steps    best eval loss  time  changed");
  EXPECT_EQ(lines[1], "lr-a  done     400/400  2.0000 @400     0:01  optim.lr=0.001");
  EXPECT_EQ(lines[2], "lr-b  stopped  120/400  2.5000 @100     0:01  optim.lr=1.0e-04");
  runs[0].recipe->data.image_root = std::string(60, 'x');
  runs[1].recipe->data.chat_template = "llava-hf";
  for (const std::string& line : runs_table(runs)) {
    for (size_t begin = 0; begin <= line.size();) {
      const size_t end = std::min(line.find('\n', begin), line.size());
      EXPECT_LE(columns_of(line.substr(begin, end - begin)), 80) << line;
      begin = end + 1;
    }
  }
  const nlohmann::ordered_json json = runs_json(runs);
  ASSERT_EQ(json["runs"].size(), 2u);
  EXPECT_EQ(json["runs"][1]["state"], "stopped");
  EXPECT_EQ(json["runs"][1]["best"]["value"], 2.5);
  EXPECT_EQ(json["runs"][1]["changed"]["optim.lr"], "1.0e-04");
  EXPECT_EQ(json["runs"][0]["saved_step"], 400);
}

TEST_F(Runs, TheBestNamesItsAdapterAndTheCommands) {
  const std::string a =
      run("a", 1e-3, start_line(4) + eval_line(2, 1.5) + eval_line(4, 2.0) + done_line(4, 4));
  dir_.write("a/adapter/adapter_config.json", "{}");
  const std::string text = all(best_lines(find_runs(dir_.path()), 0));
  EXPECT_PIECE(text, "best       eval loss 1.5000 at step 2, the lowest of 1 run\n");
  EXPECT_PIECE(text, a + "/adapter (of step 4; train.keep_best keeps the best step)\n");
  EXPECT_PIECE(text, "chat       lft generate " + a + "\n");
  EXPECT_PIECE(text, "evaluate   lft eval " + a + "\n");
}

TEST_F(Runs, TheStatusOfARunThatTrains) {
  std::string metrics = start_line(10);
  for (int64_t step = 1; step <= 4; ++step) metrics += step_line(step);
  const std::string a =
      run("a", 1e-3,
          metrics + eval_line(2, 1.5) + eval_line(4, 2.0) +
              "{\"event\":\"norm_warning\",\"step\":3,\"what\":\"a norm explodes\"}\n");
  std::string text;
  {
    const checkpoint::RunLock lock(a);
    text = all(status_lines(read_run(a)));
  }
  EXPECT_PIECE(text, "state      running: process " + std::to_string(getpid()));
  EXPECT_PIECE(text, "step       4/10 (40%)\n");
  EXPECT_PIECE(text, "loss       2.5000  grad 1  lr 0.001\n");
  EXPECT_PIECE(text, "0.5 s a step, 20 tokens/s, 0:02 so far, about 0:03 left\n");
  EXPECT_PIECE(text, "evaluation step 4: eval loss 2.0000\n");
  EXPECT_PIECE(text, "best       step 2: eval loss 1.5000\n");
  EXPECT_PIECE(text, "incidents  step 3: norm_warning: a norm explodes\n");
  EXPECT_EQ(text.find("resume"), std::string::npos) << text;
  EXPECT_PIECE(all(status_lines(read_run(a))),
               "resume     cd / && lft train " + a + "/recipe.resolved.yaml --resume\n");
}

TEST_F(Runs, ARecipeThatCannotBeReadHidesNothingElse) {
  run("a", 1e-3, start_line(4) + eval_line(2, 1.5));
  run("b", 1e-4, start_line(4) + eval_line(2, 1.4));
  dir_.write("b/recipe.resolved.yaml", "of: another version\n");
  const std::vector<RunInfo> runs = find_runs(dir_.path());
  ASSERT_EQ(runs.size(), 2u);
  EXPECT_EQ(best_run(runs, common_figure(runs)), 1u);
  EXPECT_EQ(runs_table(runs).size(), 3u);
}

TEST_F(Runs, PathsOfARecipeStartWhereTheRunWasStarted) {
  dir_.write("work/rows.json", "[]");
  dir_.write("work/held_out.json", "[]");
  recipe::Recipe recipe = small_recipe("runs/a");
  write_run(dir_, "work/runs/a", recipe,
            "{\"event\":\"start\",\"step\":0,\"folder\":\"" + dir_.file("work") +
                "\",\"total_steps\":4}\n");
  const recipe::Recipe read = read_run_recipe(dir_.file("work/runs/a"), {"data.eval=other.json"});
  EXPECT_EQ(read.output_dir, dir_.file("work/runs/a"));
  EXPECT_EQ(read.data.train.path, dir_.file("work/rows.json"));
  EXPECT_EQ(read.data.eval, "other.json") << "given by hand: relative to this folder";
  EXPECT_EQ(read.model.path, "model") << "it is not there";
}

}  // namespace
}  // namespace lft::runs_test
