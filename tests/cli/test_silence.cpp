// A run is never silent: the longest time without output, on a terminal and into a pipe, with steps
// and evaluations that take longer than that; and Ctrl-C is answered at once in each phase.
#include <gtest/gtest.h>
#include <pty.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <thread>

#include "cli/run_lft.h"
#include "train/run_files.h"

namespace lft::silence_test {
using namespace lft::io;
using namespace lft::recipe;
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
using test::TinyRun;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// lft on a terminal or with both streams in a pipe; its output is read as it comes.
class Watched {
 public:
  Watched(const std::vector<std::string>& arguments, bool terminal) {
    int ends[2] = {-1, -1};
    if (!terminal && pipe(ends) != 0) _exit(126);
    winsize size{.ws_row = 50, .ws_col = 80, .ws_xpixel = 0, .ws_ypixel = 0};
    pid_ = terminal ? forkpty(&fd_, nullptr, nullptr, &size) : fork();
    if (pid_ == 0) {
      if (!terminal) {
        dup2(ends[1], STDOUT_FILENO);
        dup2(ends[1], STDERR_FILENO);
      }
      setenv("TERM", "xterm", 1);
      setenv("NO_COLOR", "1", 1);
      test::exec_lft(arguments);
    }
    if (!terminal) {
      close(ends[1]);
      fd_ = ends[0];
    }
  }
  ~Watched() {
    if (code_ < 0) kill(pid_, SIGKILL);
    wait();
    close(fd_);
  }
  Watched(const Watched&) = delete;

  /// Reads until `text` appears after what earlier calls read up to; false at the end.
  bool until(const std::string& text) {
    while (true) {
      if (const size_t at = output_.find(text, seen_); at != std::string::npos) {
        seen_ = at + text.size();
        return true;
      }
      if (!read_more()) return false;
    }
  }
  /// Reads to the end and returns the exit code.
  int wait() {
    while (code_ < 0 && read_more()) {
    }
    int status = 0;
    if (code_ < 0 && waitpid(pid_, &status, 0) == pid_)
      code_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return code_;
  }
  void signal(int number) const { kill(pid_, number); }
  const std::string& output() const { return output_; }
  double longest_gap() const { return longest_; }

 private:
  bool read_more() {
    char buffer[4096];
    const ssize_t got = read(fd_, buffer, sizeof buffer);
    longest_ = std::max(longest_, seconds_since(last_));
    last_ = Clock::now();
    if (got <= 0) return false;
    output_.append(buffer, static_cast<size_t>(got));
    return true;
  }

  pid_t pid_ = -1;
  int fd_ = -1, code_ = -1;
  std::string output_;
  size_t seen_ = 0;
  Clock::time_point last_ = Clock::now();
  double longest_ = 0;
};

/// The rows of a file many times.
std::string copied(const TinyRun& run, const std::string& file, int copies) {
  const Json rows = Json::parse(test::slurp(file));
  Json many = Json::array();
  for (int copy = 0; copy < copies; ++copy) {
    for (Json row : rows) {
      row["id"] = row["id"].get<std::string>() + "-" + std::to_string(copy);
      many.push_back(row);
    }
  }
  return run.dir().write("many.json", many.dump());
}

/// A run of one step that takes `seconds` on this machine.
Recipe slow_step(const TinyRun& run, const std::string& out, double seconds) {
  constexpr int kPasses = 20, kMostPasses = 4000;
  Recipe recipe = run.recipe(out + "-first");
  recipe.data.train = copied(run, recipe.data.train.path, kMostPasses);
  recipe.data.eval.clear();
  recipe.train.batch_size = 12;
  recipe.train.grad_accum = kPasses;
  recipe.train.max_steps = 1;
  recipe.optim.warmup_ratio = 0;
  const std::string file = run.dir().write(out + "-first.yaml", dump_recipe(recipe));
  EXPECT_EQ(test::run_lft("train " + file).code, 0);
  const double step = test::step_lines(recipe.output_dir).at(0)["step_s"].get<double>();
  recipe.train.grad_accum =
      std::min<int64_t>(kMostPasses, static_cast<int64_t>(kPasses * seconds / step) + 1);
  recipe.output_dir = run.dir().file(out);
  return recipe;
}

class Silence : public ::testing::TestWithParam<bool> {};

/// A step of more than six seconds: at most five without new output, from start to end. A loaded
/// machine delays a line by up to a second. The step is made longer if the machine has become
/// faster since its time was measured.
TEST_P(Silence, IsAtMostFiveSecondsLong) {
  const TinyRun run;
  double took = 0;
  for (double seconds = 9; took < 6 && seconds < 100; seconds *= 2) {
    const std::string out = "out" + std::to_string(std::lround(seconds));
    const Recipe recipe = slow_step(run, out, seconds);
    Watched lft({"train", run.dir().write(out + ".yaml", dump_recipe(recipe))}, GetParam());
    EXPECT_EQ(lft.wait(), 0) << lft.output();
    took = test::step_lines(recipe.output_dir).at(0)["step_s"].get<double>();
    EXPECT_LT(lft.longest_gap(), GetParam() ? 2 : 6) << lft.output();
    // A step that proves short prints no line within it.
    if (took > 6) {
      EXPECT_NE(lft.output().find("step 0/1"), std::string::npos) << lft.output();
    }
  }
  EXPECT_GT(took, 6);
}

/// Ctrl-C during a long evaluation, and again by the run that resumes and repeats it.
TEST_P(Silence, CtrlCIsAnsweredAtOnceAndStopsAnEvaluation) {
  const TinyRun run;
  Recipe recipe = run.recipe("out");
  recipe.data.eval = copied(run, recipe.data.eval, 2000);
  recipe.train.max_steps = 4;
  recipe.train.eval_every_steps = 2;
  recipe.train.keep_best = "exact";
  const std::string file = run.dir().write("run.yaml", dump_recipe(recipe));
  for (const bool resume : {false, true}) {
    std::vector<std::string> arguments = {"train", file};
    if (resume) arguments.emplace_back("--resume");
    Watched lft(arguments, GetParam());
    ASSERT_TRUE(lft.until("evaluation of step 2 ")) << lft.output();
    const auto start = Clock::now();
    lft.signal(SIGINT);
    // Within a tenth of a second the answer is that it has stopped.
    ASSERT_TRUE(lft.until("topp")) << lft.output();
    EXPECT_LT(seconds_since(start), 2);
    EXPECT_EQ(lft.wait(), 130);
    EXPECT_LT(seconds_since(start), 20) << "an evaluation takes longer";
    EXPECT_NE(
        lft.output().find("stopped by a signal after step 2; a checkpoint is saved, --resume"),
        std::string::npos)
        << lft.output();
    EXPECT_TRUE(test::events(recipe.output_dir, "eval").empty());
  }
}

INSTANTIATE_TEST_SUITE_P(To, Silence, ::testing::Bool(), [](const auto& to) {
  return std::string(to.param ? "ATerminal" : "APipe");
});

TEST(CtrlC, IsAnsweredInAStepAndASecondOneQuitsAtOnce) {
  const TinyRun run;
  const Recipe recipe = slow_step(run, "out", 8);
  Watched lft({"train", run.dir().write("out.yaml", dump_recipe(recipe))}, true);
  ASSERT_TRUE(lft.until("step 0/1 ")) << lft.output();
  std::this_thread::sleep_for(std::chrono::milliseconds(500));  // the step has begun
  lft.signal(SIGINT);
  ASSERT_TRUE(lft.until("stopping after this step; press Ctrl-C again to quit now"))
      << lft.output();
  const auto start = Clock::now();
  lft.signal(SIGINT);
  EXPECT_EQ(lft.wait(), 130);
  EXPECT_LT(seconds_since(start), 2);
  EXPECT_TRUE(fs::exists(recipe.output_dir + "/checkpoints/step-0/MANIFEST"));
  EXPECT_TRUE(lft.output().ends_with("\n")) << "the shell's prompt has a line for itself";
}

TEST(CtrlC, StopsTheAnswersBeforeTraining) {
  const TinyRun run;
  Recipe recipe = run.recipe("out");
  recipe.data.eval.clear();
  const std::string file = run.dir().write("run.yaml", dump_recipe(recipe));
  Watched lft({"train", file}, true);
  ASSERT_TRUE(lft.until("random guessing")) << lft.output();
  lft.signal(SIGTERM);
  EXPECT_EQ(lft.wait(), 75) << lft.output();
  EXPECT_EQ(test::run_lft("train " + file + " --resume").code, 0);
  EXPECT_EQ(test::step_lines(recipe.output_dir).size(), 6u);
}

TEST(Estimate, IsPrintedByCheckAndTrain) {
  const TinyRun run;
  Recipe recipe = run.recipe("out");
  recipe.train.max_steps = 100'000;
  recipe.train.eval_every_steps = 10;
  recipe.checkpoint.at_step_zero = false;
  const std::string file = run.dir().write("run.yaml", dump_recipe(recipe));
  const std::string line = "time       about ", parts = " for 100,000 steps (estimated), of which ",
                    end = " in 10,000 evaluations";
  const test::Ran check = test::run_lft("check " + file);
  EXPECT_EQ(check.code, 0) << check.err;
  EXPECT_NE(check.out.find(line), std::string::npos) << check.out;
  EXPECT_NE(check.out.find(parts), std::string::npos) << check.out;
  EXPECT_NE(check.out.find(end), std::string::npos) << check.out;
  Watched lft({"train", file}, false);
  EXPECT_TRUE(lft.until(line) && lft.until(parts) && lft.until("step 1/100000")) << lft.output();
  lft.signal(SIGTERM);
  EXPECT_EQ(lft.wait(), 75);
}

}  // namespace
}  // namespace lft::silence_test
