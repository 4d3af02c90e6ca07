// lft checkpoint ls and verify, as run by a user on a run folder.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "checkpoint/support.h"
#include "cli/run_lft.h"

namespace lft::test::checkpoint_test {
using namespace lft::checkpoint;
namespace {

class CheckpointCommand : public ::testing::Test {
 protected:
  CheckpointCommand() {
    for (const int64_t step : {1, 2, 10})
      save_checkpoint(dir_.file("run/checkpoints"), small_checkpoint(step), 5);
  }
  std::string run() const { return dir_.file("run"); }
  TempDir dir_;
};

TEST_F(CheckpointCommand, ListsARunItsFolderAndOneStep) {
  for (const std::string& where : {run(), run() + "/checkpoints", run() + "/checkpoints/"}) {
    const Ran ran = run_lft("checkpoint ls " + where);
    EXPECT_EQ(ran.code, 0) << ran.err;
    const size_t ten = ran.out.find("\nstep-10 "), two = ran.out.find("\nstep-2 "),
                 one = ran.out.find("\nstep-1 ");
    EXPECT_LT(ten, two) << ran.out;
    EXPECT_LT(two, one) << ran.out;
    EXPECT_NE(one, std::string::npos) << ran.out;
    EXPECT_NE(ran.out.find("verified\n"), std::string::npos) << ran.out;
    EXPECT_NE(ran.out.find(small_checkpoint(1).run_id), std::string::npos) << ran.out;
  }
  std::filesystem::rename(run() + "/checkpoints/step-2", dir_.file("best"));
  for (const std::string& where : {run() + "/checkpoints/step-10", dir_.file("best")}) {
    const Ran ran = run_lft("checkpoint ls " + where);
    EXPECT_EQ(ran.code, 0) << ran.err;
    EXPECT_EQ(std::count(ran.out.begin(), ran.out.end(), '\n'), 2) << ran.out;
    EXPECT_NE(ran.out.find("verified\n"), std::string::npos) << ran.out;
  }
}

TEST_F(CheckpointCommand, VerifyNamesEveryFault) {
  EXPECT_EQ(run_lft("checkpoint verify " + run()).code, 0);
  put_bytes(run() + "/checkpoints/step-10/state.json", "{}");
  std::filesystem::remove(run() + "/checkpoints/step-1/MANIFEST");
  const Ran ran = run_lft("checkpoint verify " + run());
  EXPECT_EQ(ran.code, 4);
  EXPECT_EQ(ran.count("error:"), 1) << ran.err;
  EXPECT_NE(ran.err.find("step-10: the checkpoint is damaged: found 2 bytes, sha256 "),
            std::string::npos)
      << ran.err;
  EXPECT_NE(ran.err.find("step-1: "), std::string::npos) << ran.err;
  EXPECT_EQ(ran.err.find("step-2: "), std::string::npos) << ran.err;
  EXPECT_EQ(run_lft("checkpoint verify " + run() + "/checkpoints/step-2").code, 0);
  EXPECT_EQ(run_lft("checkpoint verify " + run() + "/checkpoints/step-10").code, 4);
  const Ran list = run_lft("checkpoint ls " + run());
  EXPECT_EQ(list.code, 0);
  EXPECT_NE(list.out.find("the checkpoint is damaged"), std::string::npos) << list.out;
}

TEST_F(CheckpointCommand, WhatIsNotThereIsSaid) {
  const Ran gone = run_lft("checkpoint verify " + dir_.file("none"));
  EXPECT_EQ(gone.code, 2);
  EXPECT_EQ(gone.count("error:"), 1) << gone.err;
  std::filesystem::create_directory(dir_.file("empty"));
  EXPECT_EQ(run_lft("checkpoint ls " + dir_.file("empty")).code, 0);
  const Ran empty = run_lft("checkpoint verify " + dir_.file("empty"));
  EXPECT_EQ(empty.code, 4);
  EXPECT_NE(empty.err.find("no checkpoint is there"), std::string::npos) << empty.err;
  EXPECT_EQ(empty.err.find("--resume"), std::string::npos) << empty.err;
  EXPECT_EQ(run_lft("checkpoint").code, 2);
}

}  // namespace
}  // namespace lft::test::checkpoint_test
