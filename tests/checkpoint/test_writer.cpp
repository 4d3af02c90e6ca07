// Writing in the background: the data passed in is what is saved, one save at a time, and a
// failure is reported.
#include <gtest/gtest.h>

#include "checkpoint/support.h"
#include "src/checkpoint/writer.h"

namespace lft::writer_test {
using namespace lft::checkpoint;
namespace {

using test::names_in;
using test::slurp;
using test::small_checkpoint;
using test::TempDir;

TEST(CheckpointWriter, SavesTheTensorsAsTheyWereWhenHandedOver) {
  const TempDir dir;
  save_checkpoint(dir.file("want"), small_checkpoint(3), 2);
  for (const bool behind : {false, true}) {
    const std::string to = dir.file(behind ? "behind" : "before");
    CheckpointWriter writer(to, 2, behind);
    const Checkpoint checkpoint = small_checkpoint(3);
    writer.save(checkpoint);
    for (const auto* tensors : {&checkpoint.trainables, &checkpoint.moments}) {
      for (const auto& [name, tensor] : *tensors) at::Tensor(tensor).fill_(7);  // the next step
    }
    writer.wait();
    for (const std::string& name : names_in(dir.file("want/step-3"))) {
      EXPECT_EQ(slurp(to + "/step-3/" + name), slurp(dir.file("want/step-3/" + name))) << name;
    }
  }
}

TEST(CheckpointWriter, WritesOneAtATimeAndKeepsTheNewest) {
  const TempDir dir;
  {
    CheckpointWriter writer(dir.path(), 2, /*behind=*/true);
    for (int64_t step = 1; step <= 5; ++step) writer.save(small_checkpoint(step));
  }  // waits for the last one
  EXPECT_EQ(names_in(dir.path()), (std::vector<std::string>{"step-4", "step-5"}));
}

TEST(CheckpointWriter, AFailureIsThrownOnceByWhatComesNext) {
  const TempDir dir;
  dir.write("file", "in the way");
  CheckpointWriter writer(dir.file("file/checkpoints"), 2, /*behind=*/true);
  writer.save(small_checkpoint(1));
  EXPECT_THROW(writer.wait(), Error);
  writer.wait();
  writer.save(small_checkpoint(2));
  EXPECT_THROW(writer.save(small_checkpoint(3)), Error);
}

}  // namespace
}  // namespace lft::writer_test
