// Processes of the built lft that are killed, stopped or interrupted: how the others end, what
// is saved, and that the resumed run equals an uninterrupted one.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <thread>

#include "dist/processes.h"
#include "src/checkpoint/checkpoint.h"

namespace lft::lost_ranks_test {
using namespace lft::recipe;
using namespace lft::test;
namespace {

constexpr int64_t kSteps = 30;

struct Blow {
  int64_t processes, rank;
  int signal;
  std::string name() const {
    return std::to_string(signal) + "_" + std::to_string(rank) + "_of_" + std::to_string(processes);
  }
};

class LostRanks : public ::testing::Test {
 protected:
  Recipe recipe(const std::string& out) const {
    Recipe recipe = run_.recipe(out);
    recipe.data.eval.clear();
    recipe.optim.schedule = "constant";
    recipe.lora.dropout = 0.25;
    recipe.train.batch_size = 1;
    recipe.train.grad_accum = 4;
    recipe.train.max_steps = kSteps;
    recipe.checkpoint = {.every_steps = 1000, .keep = 2, .at_step_zero = true};
    recipe.dist.timeout_s = 5;
    return recipe;
  }

  static std::unique_ptr<Child> launch(const Recipe& recipe, int64_t processes, bool resume) {
    const std::string file = recipe.output_dir + ".yaml";
    io::write_file_atomic(file, dump_recipe(recipe));
    std::vector<std::string> arguments = {LFT_BINARY_DIR "/lft", "launch", "--nproc",
                                          std::to_string(processes), file};
    if (resume) arguments.emplace_back("--resume");
    return std::make_unique<Child>(arguments, recipe.output_dir + ".out",
                                   recipe.output_dir + ".err",
                                   std::vector<std::string>{"OMP_NUM_THREADS=1"});
  }

  /// The processes started by a launcher, by rank.
  static std::map<int64_t, pid_t> ranks_of(pid_t launcher) {
    const std::string pid = std::to_string(launcher);
    std::ifstream children("/proc/" + pid + "/task/" + pid + "/children");
    std::map<int64_t, pid_t> ranks;
    for (pid_t child; children >> child;) {
      const std::string environment = slurp("/proc/" + std::to_string(child) + "/environ");
      const size_t at = environment.find(std::string("\0RANK=", 6));
      if (at != std::string::npos) ranks[std::atoi(environment.c_str() + at + 6)] = child;
    }
    return ranks;
  }

  static size_t steps_of(const Recipe& recipe) {
    const std::string metrics = slurp(recipe.output_dir + "/metrics.jsonl");
    size_t count = 0;
    for (size_t at = metrics.find("\"loss\""); at != std::string::npos;
         at = metrics.find("\"loss\"", at + 1))
      ++count;
    return count;
  }

  /// Sends the signal during the run; returns the launcher's exit code.
  int strike(const Recipe& recipe, const Blow& blow) {
    const std::unique_ptr<Child> child = launch(recipe, blow.processes, false);
    if (!child->wait_until([&] { return steps_of(recipe) >= 5; })) return child->wait();
    kill(ranks_of(child->pid()).at(blow.rank), blow.signal);
    return child->wait();
  }

  static std::string errors(const Recipe& recipe) { return slurp(recipe.output_dir + ".err"); }
  static int blocks(const Recipe& recipe) {
    const std::string text = errors(recipe);
    int found = 0;
    for (size_t at = text.find("error:"); at != std::string::npos; at = text.find("error:", at + 1))
      ++found;
    return found;
  }
  static int64_t newest(const Recipe& recipe) {
    const auto found = checkpoint::list_checkpoints(recipe.output_dir + "/checkpoints", true);
    return found.empty() || !found.front().fault.empty() ? -1 : found.front().step;
  }

  void expect_resumes(const Recipe& recipe) {
    ASSERT_EQ(launch(recipe, 2, true)->wait(), 0) << errors(recipe);
    const RunBytes bytes = run_bytes(recipe.output_dir, kSteps);
    EXPECT_EQ(bytes.losses, whole().losses) << recipe.output_dir;
    EXPECT_EQ(bytes.adapter, whole().adapter);
    EXPECT_EQ(bytes.weights, whole().weights);
    EXPECT_EQ(bytes.moments, whole().moments);
  }
  const RunBytes& whole() {
    if (whole_.adapter.empty()) {
      const Recipe one = recipe("whole");
      EXPECT_EQ(launch(one, 1, false)->wait(), 0) << errors(one);
      whole_ = run_bytes(one.output_dir, kSteps);
    }
    return whole_;
  }

  /// Run concurrently, since they mostly wait.
  void strike_all(const std::vector<Blow>& blows,
                  const std::function<void(const Blow&, int)>& look) {
    std::vector<int> codes(blows.size());
    std::vector<std::thread> threads;
    for (size_t i = 0; i < blows.size(); ++i)
      threads.emplace_back([&, i] { codes[i] = strike(recipe(blows[i].name()), blows[i]); });
    for (std::thread& thread : threads) thread.join();
    for (size_t i = 0; i < blows.size(); ++i) look(blows[i], codes[i]);
  }

  const TinyRun run_{/*rows=*/24};
  RunBytes whole_;
};

/// Rank 0 saves the last finished step, unless rank 0 itself is lost: then only earlier
/// saves exist. The lowest remaining rank prints the error.
TEST_F(LostRanks, AreNamedOnceAndTheLastFinishedStepIsSaved) {
  for (const int signal : {SIGKILL, SIGSTOP}) {
    const std::vector<Blow> blows = {
        {2, 0, signal}, {2, 1, signal}, {4, 0, signal}, {4, 3, signal}};
    strike_all(blows, [&](const Blow& blow, int code) {
      const Recipe recipe = this->recipe(blow.name());
      EXPECT_EQ(code, 6) << blow.name() << "\n" << errors(recipe);
      EXPECT_EQ(blocks(recipe), 1) << blow.name() << "\n" << errors(recipe);
      char host[256] = "";
      gethostname(host, sizeof host - 1);
      EXPECT_NE(errors(recipe).find("rank " + std::to_string(blow.rank) + " on " + host),
                std::string::npos)
          << errors(recipe);
      const auto done = static_cast<int64_t>(steps_of(recipe));
      if (blow.rank == 0) {
        EXPECT_EQ(newest(recipe), 0) << blow.name();
      } else {
        EXPECT_EQ(newest(recipe), done) << blow.name();
        EXPECT_GE(done, 5);
      }
    });
    expect_resumes(recipe(blows[0].name()));
    expect_resumes(recipe(blows[3].name()));
  }
}

/// The other ranks have no work left but still detect the loss.
TEST_F(LostRanks, ARankZeroThatStopsInItsReportIsNamed) {
  const Recipe out = recipe("report");
  const std::unique_ptr<Child> child = launch(out, 2, false);
  ASSERT_TRUE(child->wait_until([&] {
    return std::filesystem::exists(out.output_dir + "/adapter/adapter_model.safetensors");
  }));
  kill(ranks_of(child->pid()).at(0), SIGSTOP);
  EXPECT_EQ(child->wait(), 6) << errors(out);
  EXPECT_EQ(blocks(out), 1) << errors(out);
  EXPECT_NE(errors(out).find("rank 0 on "), std::string::npos) << errors(out);
  EXPECT_EQ(newest(out), kSteps);
}

TEST_F(LostRanks, ASignalToOneSavesOnceAndAllAreToBeQueuedAgain) {
  const std::vector<Blow> blows = {{2, 1, SIGTERM}, {4, 0, SIGUSR1}, {4, 3, SIGTERM}};
  strike_all(blows, [&](const Blow& blow, int code) {
    const Recipe recipe = this->recipe(blow.name());
    EXPECT_EQ(code, 75) << blow.name() << "\n" << errors(recipe);
    EXPECT_EQ(blocks(recipe), 0) << errors(recipe);
    const auto done = static_cast<int64_t>(steps_of(recipe));
    EXPECT_EQ(newest(recipe), done) << blow.name();
    EXPECT_EQ(events(recipe.output_dir, "checkpoint").size(), 2u);  // including step 0
  });
  expect_resumes(recipe(blows[2].name()));
}

TEST_F(LostRanks, TheLauncherHandsItsSignalOn) {
  const Recipe out = recipe("handed-on");
  const std::unique_ptr<Child> child = launch(out, 2, false);
  ASSERT_TRUE(child->wait_until([&] { return steps_of(out) >= 3; }));
  child->signal(SIGTERM);
  EXPECT_EQ(child->wait(), 75) << errors(out);
  EXPECT_EQ(blocks(out), 0);
  EXPECT_EQ(newest(out), static_cast<int64_t>(steps_of(out)));
}

TEST_F(LostRanks, ASignalThatComesBeforeTheirHandlersIsNotLost) {
  const Recipe out = recipe("at-once");
  const std::unique_ptr<Child> child = launch(out, 2, false);
  ASSERT_TRUE(child->wait_until([&] { return ranks_of(child->pid()).size() == 2; }));
  child->signal(SIGTERM);
  EXPECT_EQ(child->wait(), 75) << errors(out);
  EXPECT_EQ(blocks(out), 0) << errors(out);
}

TEST_F(LostRanks, ARecipeThatCannotBeReadIsOneBlockOfAll) {
  const Recipe out = recipe("wrong");
  io::write_file_atomic(out.output_dir + ".yaml", "version: 1\noutput: x\n");
  Child child({LFT_BINARY_DIR "/lft", "launch", "--nproc", "2", out.output_dir + ".yaml"},
              out.output_dir + ".out", out.output_dir + ".err");
  EXPECT_EQ(child.wait(), 2);
  EXPECT_EQ(blocks(out), 1) << errors(out);
}

}  // namespace
}  // namespace lft::lost_ranks_test
