// An evaluation belongs to the step before it: in checkpoints, on a resume, in best/, and if a
// signal or a kill interrupts it.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <functional>
#include <thread>

#include "src/base/signals.h"
#include "src/io/files.h"
#include "src/train/run/trainer.h"
#include "support/expect_error.h"
#include "train/overfitting.h"

namespace lft::evaluations_test {
using namespace lft::io;
using namespace lft::recipe;
using namespace lft::train;
namespace {

namespace fs = std::filesystem;
using test::adapter_bytes;
using test::eval_losses;
using test::events;
using test::overfitting;

/// Lines of an event without the folder's name.
std::vector<std::string> lines_of(const Recipe& recipe, const std::string& event) {
  std::vector<std::string> lines;
  for (Json& line : events(recipe.output_dir, event)) {
    line.erase("path");
    lines.push_back(line.dump());
  }
  return lines;
}

void expect_same(const Recipe& run, const Recipe& whole) {
  for (const char* event : {"eval", "best", "eval_answers", "images", "early_stop"})
    EXPECT_EQ(lines_of(run, event), lines_of(whole, event)) << run.output_dir;
  EXPECT_EQ(adapter_bytes(run), adapter_bytes(whole)) << run.output_dir;
}

/// The step with the lowest of the losses, from 1.
int64_t lowest_step(const std::vector<double>& losses) {
  return std::ranges::min_element(losses) - losses.begin() + 1;
}

TEST(Evaluations, ARunThatIsExtendedIsTheRunThatWasNeverStopped) {
  const test::TinyRun run;
  for (const int64_t patience : {0, 1}) {
    const auto make = [&](const std::string& out, int64_t steps) {
      Recipe recipe = overfitting(run, out + std::to_string(patience), steps);
      recipe.train.eval_every_steps = 2;
      recipe.train.patience = patience;
      recipe.checkpoint.every_steps = 3;
      return recipe;
    };
    const Recipe whole = make("whole", 8);
    ASSERT_EQ(train::train(whole), 0);
    for (const int64_t end : {2, 4, 6}) {
      Recipe parts = make("parts" + std::to_string(end) + "-", end);
      ASSERT_EQ(train::train(parts), 0);
      parts.train.max_steps = 8;
      ASSERT_EQ(train::train(parts, {.resume = true}), 0);
      expect_same(parts, whole);
    }
  }
}

TEST(Evaluations, TheOneAtTheOldEndOfAnExtendedRunIsKeptWhereItIsTheBest) {
  const test::TinyRun run;
  const Recipe every = overfitting(run, "every", 10);
  ASSERT_EQ(train::train(every), 0);
  const int64_t best = lowest_step(eval_losses(every));
  ASSERT_LT(best, 10);
  Recipe parts = overfitting(run, "parts", best);
  parts.train.eval_every_steps = 100;  // only at the end
  ASSERT_EQ(train::train(parts), 0);
  const std::string adapter = adapter_bytes(parts);
  parts.train.max_steps = 10;
  ASSERT_EQ(train::train(parts, {.resume = true}), 0);
  EXPECT_EQ(adapter_bytes(parts), adapter);
  EXPECT_EQ(eval_losses(parts),
            (std::vector<double>{eval_losses(every)[static_cast<size_t>(best - 1)],
                                 eval_losses(every)[9]}));
}

/// The folder after a kill -9 in a later step: best/ has a step that no checkpoint has.
TEST(Evaluations, AKillAfterABestOneLeavesTheBestOfTheCheckpoint) {
  const test::TinyRun run;
  const Recipe every = overfitting(run, "every", 10);
  ASSERT_EQ(train::train(every), 0);
  const std::vector<double> losses = eval_losses(every);
  const int64_t best = lowest_step(losses), saved = best - 1,
                end = std::max_element(losses.begin() + best, losses.end()) - losses.begin() + 1;
  ASSERT_GE(saved, 2);
  ASSERT_LT(losses[static_cast<size_t>(saved - 1)], losses[static_cast<size_t>(end - 1)])
      << ::testing::PrintToString(losses);
  Recipe whole = overfitting(run, "whole", 10);
  whole.checkpoint = {.every_steps = saved, .keep = 1, .at_step_zero = false};
  Recipe killed = whole;
  killed.output_dir = run.dir().file("killed");
  const auto kill = [&](int64_t step, Optimizer&) {
    if (step == best + 1)
      fs::copy(whole.output_dir, killed.output_dir, fs::copy_options::recursive);
  };
  ASSERT_EQ(train::train(whole, {.gradients_ready = kill}), 0);
  ASSERT_TRUE(fs::exists(killed.output_dir + "/best/step-" + std::to_string(best)));
  killed.train.eval_every_steps = 100;
  killed.train.max_steps = end;
  ASSERT_EQ(train::train(killed, {.resume = true}), 0);
  Recipe until_then = overfitting(run, "until", saved);
  until_then.train.keep_best = "none";
  ASSERT_EQ(train::train(until_then), 0);
  EXPECT_EQ(adapter_bytes(killed), adapter_bytes(until_then));
  EXPECT_EQ(std::distance(fs::directory_iterator(killed.output_dir + "/best"), {}), 1);
}

TEST(Evaluations, BestWeightsThatAreGoneAreMissedAtTheStart) {
  const test::TinyRun run;
  Recipe recipe = overfitting(run, "a run", 10);
  ASSERT_EQ(train::train(recipe), 0);
  const int64_t best = lowest_step(eval_losses(recipe));
  ASSERT_LT(best, 8) << "no checkpoint has it";
  const std::string adapter = adapter_bytes(recipe),
                    metrics = test::slurp(recipe.output_dir + "/metrics.jsonl");
  fs::remove_all(recipe.output_dir + "/best");
  recipe.train.max_steps = 12;
  try {
    train::train(recipe, {.resume = true});
    ADD_FAILURE() << "trained without them";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kCheckpoint);
    EXPECT_NE(error.info().what.find("of step " + std::to_string(best) + ", cannot be read"),
              std::string::npos)
        << error.info().what;
    EXPECT_NE(
        error.info().next.find("lora.init_from=\"" + recipe.output_dir + "/checkpoints/step-10\"'"),
        std::string::npos)
        << error.info().next;
  }
  EXPECT_EQ(test::slurp(recipe.output_dir + "/metrics.jsonl"), metrics);
  EXPECT_EQ(adapter_bytes(recipe), adapter);
}

TEST(Evaluations, BestWeightsThatAreGoneComeBackFromTheirCheckpoint) {
  const test::TinyRun run;
  Recipe recipe = overfitting(run, "out", 10);
  recipe.checkpoint = {.every_steps = 1, .keep = 100, .at_step_zero = false};
  ASSERT_EQ(train::train(recipe), 0);
  const std::string adapter = adapter_bytes(recipe);
  const int64_t best = lowest_step(eval_losses(recipe));
  fs::resize_file(recipe.output_dir + "/best/step-" + std::to_string(best) + "/state.json", 3);
  fs::remove_all(recipe.output_dir + "/adapter");
  ASSERT_EQ(train::train(recipe, {.resume = true}), 0);
  EXPECT_EQ(adapter_bytes(recipe), adapter);
}

/// Trains with Ctrl-C when `now` returns true. Returns the exit code.
int interrupted(const Recipe& recipe, bool resume, const std::function<bool()>& now) {
  install_signal_handlers();
  std::atomic<bool> over = false;
  std::thread watch([&] {
    while (!over && !now()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (!over) kill(getpid(), SIGINT);
  });
  const int code = train::train(recipe, {.resume = resume});
  over = true;
  watch.join();
  take_interrupt();
  return code;
}

/// Evaluations that take longer than the delivery of a signal.
void hold_out(const test::TinyRun& run, Recipe& recipe, int copies) {
  const Json rows = Json::parse(test::slurp(recipe.data.eval));
  Json many = Json::array();
  for (int copy = 0; copy < copies; ++copy) {
    for (Json row : rows) {
      row["id"] = row["id"].get<std::string>() + "-" + std::to_string(copy);
      many.push_back(row);
    }
  }
  recipe.data.eval = run.dir().write("many.json", many.dump());
}

std::string said(const std::function<void()>& what) {
  ::testing::internal::CaptureStderr();
  what();
  return ::testing::internal::GetCapturedStderr();
}

TEST(Evaluations, OneThatASignalInterruptsIsDoneFirstByTheResumedRun) {
  const test::TinyRun run;
  const auto make = [&](const std::string& out) {
    Recipe recipe = overfitting(run, out, 6);
    recipe.train.eval_every_steps = 2;
    hold_out(run, recipe, 40);
    return recipe;
  };
  const Recipe whole = make("whole");
  ASSERT_EQ(train::train(whole), 0);
  for (const int64_t step : {2, 6}) {  // during it and at its end
    const Recipe parts = make("parts" + std::to_string(step));
    const std::string line = "{\"step\":" + std::to_string(step) + ",",
                      end = parts.output_dir + "/checkpoints/step-6/MANIFEST";
    const auto now = [&] {
      if (step == 6) return path_exists(end);
      const std::string metrics = parts.output_dir + "/metrics.jsonl";
      return path_exists(metrics) && test::slurp(metrics).find(line) != std::string::npos;
    };
    const std::string message = said([&] { EXPECT_EQ(interrupted(parts, false, now), 130); });
    EXPECT_NE(message.find("after step " + std::to_string(step) +
                           "; a checkpoint is saved, --resume continues from it and first does "
                           "the evaluation of this step"),
              std::string::npos)
        << message;
    EXPECT_EQ(events(parts.output_dir, "eval").size(), static_cast<size_t>(step / 2 - 1));
    ASSERT_EQ(train::train(parts, {.resume = true}), 0);
    expect_same(parts, whole);
  }
}

/// Interrupted in the step before the evaluation, so that it does not begin.
TEST(Evaluations, OneThatASignalComesBeforeIsDoneFirstByTheResumedRun) {
  const test::TinyRun run;
  const auto make = [&](const std::string& out) {
    Recipe recipe = overfitting(run, out, 8);
    recipe.train.eval_every_steps = 2;
    recipe.train.patience = 2;
    return recipe;
  };
  const Recipe whole = make("whole");
  ASSERT_EQ(train::train(whole), 0);
  install_signal_handlers();
  const auto last = events(whole.output_dir, "eval").back()["step"].get<int64_t>();
  for (const int64_t step : {int64_t{2}, last}) {
    Recipe parts = make("parts" + std::to_string(step));
    const auto interrupt = [&](int64_t now, Optimizer&) {
      if (now == step) raise(SIGINT);
    };
    ASSERT_EQ(train::train(parts, {.gradients_ready = interrupt}), 130);
    take_interrupt();
    EXPECT_EQ(events(parts.output_dir, "eval").size(), static_cast<size_t>(step / 2 - 1));
    parts.train.eval_every_steps = 100;  // a scheduled one does not depend on it
    parts.train.max_steps = step;
    ASSERT_EQ(train::train(parts, {.resume = true}), 0);
    EXPECT_EQ(events(parts.output_dir, "eval").size(), static_cast<size_t>(step / 2));
    parts.train.eval_every_steps = 2;
    parts.train.max_steps = 8;
    ASSERT_EQ(train::train(parts, {.resume = true}), 0);
    expect_same(parts, whole);
  }
}

TEST(Evaluations, ASignalWhileRowsAreAnsweredAfterTheLastStepIsObeyed) {
  const test::TinyRun run;
  Recipe recipe = overfitting(run, "out", 2);
  hold_out(run, recipe, 6);
  const std::string adapter = recipe.output_dir + "/adapter/adapter_model.safetensors";
  const std::string message = said(
      [&] { EXPECT_EQ(interrupted(recipe, false, [&] { return path_exists(adapter); }), 130); });
  EXPECT_NE(message.find("the run is complete and saved, only its answers are missing"),
            std::string::npos)
      << message;
  EXPECT_EQ(events(recipe.output_dir, "eval").size(), 2u);
  const std::string report = recipe.output_dir + "/report.html";
  EXPECT_EQ(test::slurp(report).find("answered exactly"), std::string::npos);
  const std::string bytes = adapter_bytes(recipe);
  ASSERT_EQ(train::train(recipe, {.resume = true}), 0);
  EXPECT_NE(test::slurp(report).find("answered exactly"), std::string::npos);
  EXPECT_EQ(adapter_bytes(recipe), bytes);
  EXPECT_EQ(events(recipe.output_dir, "eval").size(), 2u);
}

}  // namespace
}  // namespace lft::evaluations_test
