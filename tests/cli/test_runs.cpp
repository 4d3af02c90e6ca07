// What a user does after training: the last lines of train, lft runs, status and sweep, and the run
// as the argument of generate, eval and score, from another folder.
#include <gtest/gtest.h>

#include <filesystem>
#include <thread>

#include "cli/run_lft.h"
#include "support/child.h"
#include "train/run_files.h"

namespace lft::runs_cli_test {
using namespace lft::io;
using namespace lft::recipe;
using namespace lft::test;
namespace {

namespace fs = std::filesystem;

#define EXPECT_PIECE(text, piece) \
  EXPECT_NE((text).find(piece), std::string::npos) << "no \"" << (piece) << "\" in:\n" << (text)

/// A recipe whose paths are relative to the folder of the run's data.
class RunsCli : public ::testing::Test {
 protected:
  void SetUp() override {
    recipe_ = run_.recipe("x");
    recipe_.output_dir = "runs/a";
    recipe_.model.path = "model";
    recipe_.data.train = "rows.json";
    recipe_.data.eval = "rows.json";
    recipe_.data.image_root = "images";
    recipe_.train.eval_every_steps = 2;
    write();
  }
  void write() const { run_.dir().write("mine.yaml", dump_recipe(recipe_)); }
  Ran here(const std::string& arguments) const { return run_lft(arguments, run_.dir().path()); }
  /// From a folder in which no path of the recipe exists.
  Ran elsewhere(const std::string& arguments) const { return run_lft(arguments, "/"); }
  std::string path(const std::string& name) const { return run_.dir().file(name); }

  const TinyRun run_;
  Recipe recipe_;
};

Json last_line(const Ran& ran) {
  EXPECT_EQ(ran.code, 0) << ran.err;
  const size_t end = ran.out.find_last_not_of('\n') + 1;
  return Json::parse(ran.out.substr(ran.out.rfind('\n', end - 1) + 1, end));
}

TEST_F(RunsCli, TrainEndsWithItsAdapterAndCommandsThatRun) {
  recipe_.train.keep_best = "eval_loss";
  write();
  const Ran ran = here("train mine.yaml");
  ASSERT_EQ(ran.code, 0) << ran.err;
  double lowest = INFINITY;
  int64_t step = 0;
  for (const Json& eval : events(path("runs/a"), "eval")) {
    if (eval["eval_loss"].get<double>() >= lowest) continue;
    lowest = eval["eval_loss"];
    step = eval["step"];
  }
  char figure[64];
  std::snprintf(figure, sizeof figure, "(step %d: eval loss %.4f, the lowest)\n",
                static_cast<int>(step), lowest);
  EXPECT_PIECE(ran.out, "adapter    runs/a/adapter " + std::string(figure));
  EXPECT_EQ(events(path("runs/a"), "done").at(0)["saved_step"], step);
  EXPECT_TRUE(ran.out.ends_with("chat       lft generate runs/a\nevaluate   lft eval runs/a\n"))
      << ran.out;
  EXPECT_EQ(here("generate runs/a --prompt Hi --max-new-tokens 1").code, 0);
  const Json result = last_line(here("eval runs/a --max-new-tokens 1"));
  EXPECT_NEAR(result["loss"].get<double>(), lowest, 1e-5 * lowest);
}

TEST_F(RunsCli, WithoutKeepBestABetterEarlierStepIsNamed) {
  recipe_.optim.lr = 3;  // it diverges
  recipe_.optim.schedule = "constant";
  recipe_.optim.warmup_ratio = 0.5;
  write();
  const Ran ran = here("train mine.yaml --set train.eval_every_steps=1");
  ASSERT_EQ(ran.code, 0) << ran.err;
  EXPECT_PIECE(ran.out, "adapter    runs/a/adapter (step 6: eval loss ");
  EXPECT_PIECE(ran.out, " had the lowest eval loss, ");
  EXPECT_PIECE(ran.out, "; train.keep_best: eval_loss saves the best step\n");
}

TEST_F(RunsCli, ARunAnAdapterAndARecipeNameTheModelFromAnyFolder) {
  ASSERT_EQ(here("train mine.yaml").code, 0);
  const std::string run = path("runs/a"), ask = " --prompt Hi --max-new-tokens 1";
  const std::string told = "adapter: " + run + "/adapter";
  for (const std::string& argument :
       {run, run + "/", run + "/adapter", "--adapter " + run, "--adapter " + run + "/adapter"}) {
    const Ran ran = elsewhere("generate " + argument + ask);
    EXPECT_EQ(ran.code, 0) << argument << "\n" << ran.err;
    EXPECT_PIECE(ran.err, "model: ");
    EXPECT_PIECE(ran.err, "runs/a/");
  }
  for (const char* argument : {"mine.yaml", "--adapter mine.yaml", "runs/a", "runs/a/adapter"}) {
    const Ran ran = here("generate " + std::string(argument) + ask);
    EXPECT_EQ(ran.code, 0) << argument << "\n" << ran.err;
    EXPECT_PIECE(ran.err, "adapter: runs/a/adapter");
  }
  const Ran base = elsewhere("generate " + path("model") + ask);
  EXPECT_EQ(base.code, 0) << base.err;
  EXPECT_PIECE(base.err, "adapter: none");
  const Json by_recipe = last_line(here("eval mine.yaml --max-new-tokens 1")),
             by_run = last_line(elsewhere("eval " + run + " --max-new-tokens 1"));
  EXPECT_EQ(by_recipe["loss"], by_run["loss"]);
  EXPECT_EQ(by_run["adapter"], run + "/adapter");
  const Ran scored = elsewhere("score " + run + " --data " + path("rows.json") + " --image-root " +
                               path("images") + " --out " + path("scores.jsonl"));
  EXPECT_EQ(scored.code, 0) << scored.err;
}

TEST_F(RunsCli, WhatIsNoRunIsNamed) {
  const Ran none = here("generate nothing --prompt Hi");
  EXPECT_EQ(none.code, 2);
  EXPECT_PIECE(none.err, "no such run, adapter, model or recipe");
  EXPECT_PIECE(here("generate --prompt Hi").err, "error: no model");
  fs::create_directories(path("runs/b"));
  run_.dir().write("runs/b/metrics.jsonl", "{\"event\":\"start\",\"step\":0,\"total_steps\":9}\n");
  const Ran early = here("generate runs/b --prompt Hi");
  EXPECT_EQ(early.code, 2);
  EXPECT_PIECE(early.err, "the run is stopped, at step 0 of 9");
  EXPECT_EQ(here("eval runs/a").code, 2);
  EXPECT_EQ(here("eval model --set lora.rank=3").code, 2);
  EXPECT_EQ(here("status runs/none").code, 2);
  EXPECT_EQ(here("runs none").code, 2);
  EXPECT_PIECE(here("runs images").err, "no run in this folder or below it");
}

TEST_F(RunsCli, ANameOfABundledRecipeIsARecipe) {
  const Ran ran = here("check quickstart --set train.max_steps=0 --set lora.rank=none");
  EXPECT_EQ(ran.code, 2);
  EXPECT_PIECE(ran.err, "lora.rank");
  EXPECT_PIECE(here("train rows-2000").err, "lft recipe ls");
}

TEST_F(RunsCli, ASweepRunsSkipsAndLists) {
  const std::string sweep = "sweep mine.yaml --over optim.lr=1e-3,1e-2 --out runs/s";
  const Ran ran = here(sweep);
  ASSERT_EQ(ran.code, 0) << ran.err;
  EXPECT_PIECE(ran.out, "sweep      2 runs below runs/s\n");
  EXPECT_PIECE(ran.out, "run        2 of 2: runs/s/lr-1e-2\n");
  EXPECT_PIECE(ran.out, "optim.lr=0.001\n");
  const Ran again = here(sweep);
  ASSERT_EQ(again.code, 0) << again.err;
  EXPECT_PIECE(again.out, "runs/s/lr-1e-3 is done already\n");
  EXPECT_EQ(again.out.find("precision"), std::string::npos) << "nothing was trained";
  const Json all = Json::parse(here("runs runs --json").out);
  ASSERT_EQ(all["runs"].size(), 2u);
  for (const Json& run : all["runs"]) {
    EXPECT_EQ(run["state"], "done");
    EXPECT_EQ(run["step"], 6);
    EXPECT_EQ(run["seed"], 42);
  }
  const Json best = Json::parse(here("runs best --json").out);
  const double a = all["runs"][0]["best"]["value"], b = all["runs"][1]["best"]["value"];
  EXPECT_EQ(best["best"]["value"], std::min(a, b));
  EXPECT_PIECE(here("runs best runs/s").out, "chat       lft generate runs/s/lr-1e-");
  EXPECT_EQ(here("runs").out, here("runs runs").out);
  EXPECT_PIECE(here("status runs/s/lr-1e-3").out, "state      done\nstep       6/6 (100%)\n");
}

TEST_F(RunsCli, AHalvedSweepContinuesTheBetterRunToTheSameBytes) {
  const Ran ran = here("sweep mine.yaml --over optim.lr=1e-5,1e-2 --out runs/s --halve");
  ASSERT_EQ(ran.code, 0) << ran.err;
  EXPECT_PIECE(ran.out,
               "halved     after a third of the steps these are worse and stop: lr-1e-5\n");
  EXPECT_EQ(step_lines(path("runs/s/lr-1e-5")).size(), 2u);
  ASSERT_EQ(here("train mine.yaml --set optim.lr=1e-2").code, 0);
  EXPECT_EQ(run_bytes(path("runs/s/lr-1e-2"), 6), run_bytes(path("runs/a"), 6));
}

/// Ctrl-C ends the sweep with the exit code of its run, which the same command resumes.
TEST_F(RunsCli, CtrlCStopsASweepWithTheRunsExitCode) {
  Recipe recipe = run_.recipe("x");
  recipe.train.max_steps = 400;
  recipe.checkpoint.every_steps = 1000;
  const std::string file = run_.dir().write("long.yaml", dump_recipe(recipe)), out = path("s"),
                    first = out + "/seed-1/metrics.jsonl";
  const std::vector<std::string> sweep = {LFT_BINARY_DIR "/lft", "sweep", file,        "--over",
                                          "train.seed=1,2",      "--out", out.c_str(), "--set",
                                          "train.max_steps=400"};
  Child child(sweep, path("out.txt"), path("err.txt"), {"OMP_NUM_THREADS=1"});
  ASSERT_TRUE(child.wait_until([&] {
    return fs::exists(first) && slurp(first).find("{\"step\":3,") != std::string::npos;
  })) << slurp(path("err.txt"));
  child.signal(SIGINT);
  EXPECT_EQ(child.wait(), 130) << slurp(path("err.txt"));
  EXPECT_PIECE(slurp(path("err.txt")), "the sweep is stopped: the same command");
  EXPECT_FALSE(fs::exists(out + "/seed-2"));
  const Json stopped = Json::parse(run_lft("status --json " + out + "/seed-1").out);
  EXPECT_EQ(stopped["state"], "stopped");
  EXPECT_EQ(stopped["total_steps"], 400);
  const int64_t step = stopped["step"];
  const Ran again = run_lft("sweep " + file + " --over train.seed=1,2 --out " + out +
                            " --set train.max_steps=" + std::to_string(step + 2));
  ASSERT_EQ(again.code, 0) << again.err;
  EXPECT_EQ(events(out + "/seed-1", "resume").at(0)["step"], step);
  EXPECT_EQ(step_lines(out + "/seed-1").size(), static_cast<size_t>(step + 2));
}

TEST_F(RunsCli, AFailedRunOfASweepIsTheExitStatus) {
  const Ran ran = here("sweep mine.yaml --over 'lora.targets=[llm:none],[llm:q_proj]'");
  EXPECT_EQ(ran.code, 2) << ran.err;
  EXPECT_PIECE(ran.err, "1 of 2 runs of the sweep failed");
  EXPECT_PIECE(ran.out, "done       6 steps in ");
  EXPECT_TRUE(fs::exists(path("runs/a-sweep")));
}

}  // namespace
}  // namespace lft::runs_cli_test
