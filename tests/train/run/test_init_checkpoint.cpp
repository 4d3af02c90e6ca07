// A run that starts from a checkpoint of another one: its weights, its moments, and refused
// combinations.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "src/base/text.h"
#include "src/train/inputs/init_checkpoint.h"
#include "src/train/inputs/run_inputs.h"
#include "src/train/run/trainer.h"
#include "support/expect_error.h"
#include "train/run_files.h"
#include "train/spoil.h"

namespace lft::init_checkpoint_test {
using namespace lft::io;
using namespace lft::recipe;
using namespace lft::train;
namespace {

namespace fs = std::filesystem;
using test::step_lines;

/// Every step uses all rows in order, at one rate: steps differ only in weights and
/// moments.
Recipe even_steps(const test::TinyRun& run, const std::string& out, int64_t steps) {
  Recipe recipe = run.recipe(out);
  recipe.data.eval.clear();
  recipe.data.shuffle = false;
  recipe.lora.dropout = 0;
  recipe.optim.schedule = "constant";
  recipe.optim.warmup_ratio = 0;
  recipe.train.batch_size = 12;
  recipe.train.max_steps = steps;
  recipe.checkpoint = {.every_steps = 1, .keep = 100, .at_step_zero = false};
  return recipe;
}

std::vector<double> losses(const Recipe& recipe) {
  std::vector<double> out;
  for (const Json& line : step_lines(recipe.output_dir)) out.push_back(line["loss"].get<double>());
  return out;
}

class Starts : public ::testing::TestWithParam<const char*> {};

TEST_P(Starts, WithMomentsItGoesOnAsTheRunItLeftBitForBit) {
  const test::TinyRun run;
  const auto with_optimizer = [](Recipe recipe) {
    const std::string name = GetParam();
    if (name == "pissa" || name == "dora") recipe.lora.variant = name;
    if (name == "all") {
      recipe.full = {"all"};
      recipe.lora.targets.clear();
    }
    if (name == "lion" || name == "adamw8bit") recipe.optim.name = name;
    return recipe;
  };
  const Recipe whole = with_optimizer(even_steps(run, "whole", 5));
  ASSERT_EQ(train::train(whole), 0);
  Recipe next = with_optimizer(even_steps(run, "next", 3));
  next.lora.init_from = whole.output_dir + "/checkpoints/step-2";
  next.optim.init_moments = true;
  ASSERT_EQ(train::train(next), 0);
  const std::vector<double> all = losses(whole), tail = losses(next);
  EXPECT_EQ(tail, std::vector<double>(all.begin() + 2, all.end()));
  Recipe without = with_optimizer(even_steps(run, "without", 3));
  without.lora.init_from = next.lora.init_from;
  ASSERT_EQ(train::train(without), 0);
  EXPECT_EQ(losses(without)[0], tail[0]);
  EXPECT_NE(losses(without)[2], tail[2]);
}

INSTANTIATE_TEST_SUITE_P(All, Starts,
                         ::testing::Values("adamw", "adamw8bit", "lion", "pissa", "dora", "all"),
                         [](const auto& info) { return std::string(info.param); });

TEST(InitCheckpoint, WhatDoesNotFitIsRefusedBeforeAnyWeightIsRead) {
  const test::TinyRun run, stranger(9);
  const Recipe whole = even_steps(run, "whole", 2);
  ASSERT_EQ(train::train(whole), 0);
  const std::string step = whole.output_dir + "/checkpoints/step-2";
  const auto with = [&](const std::function<void(Recipe&)>& change) {
    Recipe recipe = even_steps(run, "next", 2);
    recipe.lora.init_from = step;
    change(recipe);
    return recipe;
  };
  EXPECT_NO_THROW(open_inputs(with([](Recipe&) {})));
  EXPECT_LFT_ERROR(ErrorKind::kInput, "lora.rank: stored 4, now 8",
                   open_inputs(with([](Recipe& recipe) { recipe.lora.rank = 8; })));
  EXPECT_LFT_ERROR(ErrorKind::kInput, "lora.alpha",
                   open_inputs(with([](Recipe& recipe) { recipe.lora.alpha = 9; })));
  EXPECT_LFT_ERROR(ErrorKind::kInput, "full",
                   open_inputs(with([](Recipe& recipe) { recipe.full.clear(); })));
  const fs::path config = stranger.model() + "/config.json";
  Json changed = Json::parse(test::slurp(config));
  changed["text_config"]["rope_theta"] = 5000;
  stranger.dir().write("model/config.json", changed.dump());
  EXPECT_LFT_ERROR(
      ErrorKind::kInput, "another base model",
      open_inputs(with([&](Recipe& recipe) { recipe.model.path = stranger.model(); })));
  EXPECT_LFT_ERROR(ErrorKind::kUsage, "an adapter has no moments", open_inputs(with([&](Recipe& r) {
                     r.lora.init_from = whole.output_dir + "/adapter";
                     r.optim.init_moments = true;
                   })));
  EXPECT_LFT_ERROR(ErrorKind::kUsage, "no layer of the run has an adapter",
                   open_inputs(with([&](Recipe& recipe) {
                     recipe.lora.init_from = whole.output_dir + "/adapter";
                     recipe.lora.targets.clear();
                     recipe.full = {"all"};
                   })));
  const Recipe lion = with([](Recipe& recipe) {
    recipe.optim.name = "lion";
    recipe.optim.init_moments = true;
  });
  EXPECT_LFT_ERROR(ErrorKind::kInput, "optim.init_moments", train::train(lion));
  fs::resize_file(step + "/trainables.safetensors", 100);
  EXPECT_LFT_ERROR(ErrorKind::kCheckpoint, "trainables.safetensors",
                   open_inputs(with([](Recipe&) {})));
}

/// Words of the line that describes how to resume, as split by a shell.
std::vector<std::string> command_in(const std::string& text) {
  const size_t at = text.find("lft train ");
  const std::string line = text.substr(at, text.find('\n', at) - at);
  FILE* const shell = popen(("printf '%s\\n' " + line).c_str(), "r");
  std::vector<std::string> words;
  char word[4096];
  while (std::fgets(word, sizeof word, shell) != nullptr)
    words.push_back(std::string(word).substr(0, std::strlen(word) - 1));
  EXPECT_EQ(pclose(shell), 0) << line;
  return words;
}

class Ways : public ::testing::TestWithParam<const char*> {};

TEST_P(Ways, TheCommandThatAStoppedRunNamesWorksAsItStands) {
  const test::TinyRun run;
  Recipe recipe = even_steps(run, GetParam(), 6);
  std::string next;
  try {
    train::train(recipe, {.gradients_ready = test::spoil({4}, INFINITY)});
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kNumeric);
    next = error.info().next;
  }
  EXPECT_NE(next.find("lft replay " + shell_word(recipe.output_dir + "/incidents/step-4")),
            std::string::npos)
      << next;
  const std::vector<std::string> words = command_in(next);
  ASSERT_GE(words.size(), 3u) << next;
  std::vector<std::string> sets;
  for (size_t i = 3; i + 1 < words.size(); i += 2) {
    ASSERT_EQ(words[i], "--set");
    sets.push_back(words[i + 1]);
  }
  const Recipe lower = read_recipe(words[2], sets);
  EXPECT_EQ(lower.lora.init_from, recipe.output_dir + "/checkpoints/step-3");
  EXPECT_LT(lower.optim.lr, recipe.optim.lr);
  ASSERT_EQ(train::train(lower), 0);
  EXPECT_LT(losses(lower)[0], losses(recipe)[0]);
}

INSTANTIATE_TEST_SUITE_P(Folders, Ways,
                         ::testing::Values("out", "my runs/it's $HOME #1: \"a\" `b`"),
                         [](const auto& info) { return std::to_string(info.index); });

/// Even with rare checkpoints: learning before the step is not lost, and a resumed
/// run, which meets no fault the second time, equals one without faults.
TEST(InitCheckpoint, TheStepBeforeOneThatIsNotFiniteIsSaved) {
  const test::TinyRun run;
  const Recipe whole = even_steps(run, "whole", 6);
  ASSERT_EQ(train::train(whole), 0);
  Recipe recipe = even_steps(run, "out", 6);
  recipe.checkpoint.every_steps = 1000;
  try {
    train::train(recipe, {.gradients_ready = test::spoil({4}, INFINITY)});
    ADD_FAILURE() << "the step was finite";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kNumeric);
    EXPECT_NE(error.info().next.find("from the weights of step 3, the last one before it, which "
                                     "is saved,"),
              std::string::npos)
        << error.info().next;
  }
  const auto saved = [](const Recipe& of) {
    const std::string step = of.output_dir + "/checkpoints/step-3/";
    Json state = Json::parse(test::slurp(step + "state.json"));
    state.erase("metrics_bytes");  // with the paths of other checkpoints
    return std::vector<std::string>{state.dump(), test::slurp(step + "trainables.safetensors"),
                                    test::slurp(step + "optimizer.safetensors")};
  };
  EXPECT_EQ(saved(recipe), saved(whole));
  ASSERT_EQ(train::train(recipe, {.resume = true}), 0);
  EXPECT_EQ(test::run_bytes(recipe.output_dir, 6), test::run_bytes(whole.output_dir, 6));
}

TEST(InitCheckpoint, AResumedRunSaysWhatItComputesInSinceItsRecovery) {
  const test::TinyRun run;
  Recipe recipe = even_steps(run, "out", 4);
  recipe.precision.compute = "bf16";
  ASSERT_EQ(train::train(recipe, {.gradients_ready = test::spoil({2}, INFINITY)}), 0);
  recipe.train.max_steps = 6;
  const auto said = [&](const Recipe& resumed) {
    ::testing::internal::CaptureStdout();
    EXPECT_EQ(train::train(resumed, {.resume = true}), 0);
    return ::testing::internal::GetCapturedStdout();
  };
  const std::string text = said(recipe);
  EXPECT_NE(text.find("precision  fp32 (since the recovery; it began in bf16)"), std::string::npos)
      << text;
  Recipe healthy = even_steps(run, "healthy", 2);
  healthy.precision.compute = "bf16";
  ASSERT_EQ(train::train(healthy), 0);
  EXPECT_NE(said(healthy).find("precision  bf16 (as asked)"), std::string::npos);
}

}  // namespace
}  // namespace lft::init_checkpoint_test
