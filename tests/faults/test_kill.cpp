// kill -9 at any moment costs at most one save interval: the resumed run ends
// with the same bytes as an uninterrupted one.
#include "faults/train_fixture.h"

namespace lft::test::kill_test {
using namespace lft::checkpoint;
using namespace lft::recipe;
namespace {

/// 50 kills unless LFT_KILLS is set.
int kills_wanted() {
  const char* const wanted = std::getenv("LFT_KILLS");
  return wanted != nullptr ? std::atoi(wanted) : 50;
}

using Kill = TrainFaults;

TEST_F(Kill, AtRandomMomentsOverLoadStepSaveAndEval) {
  expected();
  std::mt19937 random(11);
  int kills = 0;
  for (int chain = 0; kills < kills_wanted(); ++chain) {
    const Recipe out = recipe("kill" + std::to_string(chain));
    int64_t reached = -1;
    bool done = false;
    for (int attempt = 0; !done; ++attempt) {
      const std::unique_ptr<Child> child = start(out, /*resume=*/attempt > 0);
      if (kills < kills_wanted()) {
        sleep_into_a_run(random);
        child->signal(SIGKILL);
      }
      const int code = child->wait();
      done = code == 0;
      if (done) break;
      ASSERT_EQ(code, 128 + SIGKILL) << errors(out);
      ++kills;
      // Nothing committed is lost.
      const std::vector<CheckpointStatus> checkpoints =
          list_checkpoints(out.output_dir + "/checkpoints", /*verify=*/true);
      const auto good = std::find_if(checkpoints.begin(), checkpoints.end(),
                                     [](const CheckpointStatus& c) { return c.fault.empty(); });
      const int64_t newest = good == checkpoints.end() ? -1 : good->step;
      EXPECT_GE(newest, reached);
      reached = newest;
    }
    expect_whole(out);
  }
}

}  // namespace
}  // namespace lft::test::kill_test
