// Signals at any moment of a run: what is saved, the exit code, and that nothing is lost.
#include "faults/train_fixture.h"

namespace lft::test::signals_test {
using namespace lft::checkpoint;
using namespace lft::io;
using namespace lft::recipe;
namespace {

namespace fs = std::filesystem;

class Signals : public TrainFaults {};

TEST_F(Signals, AtRandomMomentsSaveOnceAndResumeToTheSameRun) {
  expected();
  std::mt19937 random(7);
  int saved = 0, before_the_first = 0;
  for (int i = 0; i < 20; ++i) {
    const Recipe out = recipe("signal" + std::to_string(i));
    const int number = i % 2 == 0 ? SIGTERM : SIGUSR1;
    const std::unique_ptr<Child> child = start(out, false);
    if (i % 4 < 2) {
      sleep_into_a_run(random);
    } else {  // after the first checkpoint, independent of loading time
      ASSERT_TRUE(child->wait_until(
          [&] { return fs::exists(out.output_dir + "/checkpoints/step-0/MANIFEST"); }));
      std::this_thread::sleep_for(std::chrono::milliseconds(
          static_cast<int64_t>(random() % static_cast<uint64_t>(whole_ms() / 8 + 1))));
    }
    child->signal(number);
    const int code = child->wait();
    const std::vector<CheckpointStatus> checkpoints =
        list_checkpoints(out.output_dir + "/checkpoints", /*verify=*/true);
    if (code == 0) continue;     // the run had already finished
    if (code == 128 + number) {  // before main installed its signal handlers
      EXPECT_FALSE(fs::exists(out.output_dir));
      continue;
    }
    ASSERT_EQ(code, 75) << errors(out);
    EXPECT_EQ(errors(out).find("error:"), std::string::npos);
    if (checkpoints.empty()) {
      ++before_the_first;
      EXPECT_FALSE(fs::exists(out.output_dir + "/metrics.jsonl"));
      continue;
    }
    ++saved;
    const int64_t last = checkpoints.front().step;
    EXPECT_EQ(checkpoints.front().fault, "");
    EXPECT_EQ(step_lines(out.output_dir).size(), static_cast<size_t>(last));
    const std::vector<Json> saves = events(out.output_dir, "checkpoint");
    EXPECT_EQ(std::count_if(saves.begin(), saves.end(),
                            [&](const Json& save) { return save["step"] == last; }),
              1);
    if (saved % 4 != 1) continue;
    EXPECT_EQ(finish(out, true), 0) << errors(out);
    expect_whole(out);
  }
  EXPECT_GT(saved, 3);
}

TEST_F(Signals, CtrlCSavesAndExits130) {
  const Recipe out = recipe("ctrl-c");
  const std::unique_ptr<Child> child = start(out, false);
  ASSERT_TRUE(
      child->wait_until([&] { return fs::exists(out.output_dir + "/checkpoints/step-4"); }));
  child->signal(SIGINT);
  EXPECT_EQ(child->wait(), 130);
  EXPECT_EQ(list_checkpoints(out.output_dir + "/checkpoints", true).front().fault, "");
  EXPECT_NE(errors(out).find("--resume"), std::string::npos);
  EXPECT_EQ(finish(out, true), 0);
  expect_whole(out);
}

TEST_F(Signals, TheSecondOneEndsItAtOnce) {
  Recipe out = recipe("twice");
  out.train.batch_size = 12;
  out.train.grad_accum = 40;  // steps longer than the pause below
  const std::unique_ptr<Child> child = start(out, false);
  ASSERT_TRUE(
      child->wait_until([&] { return fs::exists(out.output_dir + "/checkpoints/step-0"); }));
  child->signal(SIGTERM);
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  child->signal(SIGTERM);
  EXPECT_EQ(child->wait(), 128 + SIGTERM);
  EXPECT_EQ(list_checkpoints(out.output_dir + "/checkpoints", true).front().fault, "");
}

TEST_F(Signals, AFileAboveTheLimitOfItsUserIsAnError) {
  const Recipe out = recipe("limit");
  write_file_atomic(out.output_dir + ".yaml", dump_recipe(out));
  const std::string command = "bash -c 'ulimit -f 8; OMP_NUM_THREADS=1 exec " LFT_BINARY_DIR
                              "/lft train " +
                              out.output_dir + ".yaml >/dev/null 2>" + out.output_dir + ".err'";
  EXPECT_EQ(WEXITSTATUS(std::system(command.c_str())), 6) << errors(out);
  EXPECT_NE(errors(out).find("error: "), std::string::npos) << errors(out);
}

TEST_F(Signals, AReaderThatGoesAwayDoesNotStopTheRun) {
  const Recipe out = recipe("pipe");
  write_file_atomic(out.output_dir + ".yaml", dump_recipe(out));
  const std::string command =
      "bash -c 'set -o pipefail; OMP_NUM_THREADS=1 " LFT_BINARY_DIR "/lft train " + out.output_dir +
      ".yaml 2>/dev/null | head -1 >/dev/null; exit ${PIPESTATUS[0]}'";
  EXPECT_EQ(WEXITSTATUS(std::system(command.c_str())), 0);
  expect_whole(out);
}

TEST_F(Signals, TwoRunsInOneDirectory) {
  const Recipe out = recipe("shared");
  const std::unique_ptr<Child> first = start(out, false);
  ASSERT_TRUE(
      first->wait_until([&] { return fs::exists(out.output_dir + "/checkpoints/step-4"); }));
  first->signal(SIGSTOP);  // a stopped run keeps its lock
  Recipe other = out;
  for (const bool resume : {true, false}) {
    const std::string file = out.output_dir + ".yaml";
    Child second(
        {LFT_BINARY_DIR "/lft", "train", file, resume ? "--resume" : "--set=data.workers=1"},
        out.output_dir + ".out2", out.output_dir + ".err2", {"OMP_NUM_THREADS=1"});
    EXPECT_EQ(second.wait(), 2);
    const std::string message = slurp(out.output_dir + ".err2");
    char host[256] = "";
    gethostname(host, sizeof host - 1);
    EXPECT_NE(message.find(std::to_string(first->pid())), std::string::npos) << message;
    EXPECT_NE(message.find(host), std::string::npos) << message;
  }
  first->signal(SIGKILL);
  EXPECT_EQ(first->wait(), 128 + SIGKILL);
  EXPECT_EQ(finish(out, true), 0) << errors(out);
  expect_whole(out);
}

}  // namespace
}  // namespace lft::test::signals_test
