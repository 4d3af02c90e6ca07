// Event files byte by byte, against the output of TensorBoard's own writer and protobuf classes
// (tensorboard 2.20: RecordWriter, Event).
#include <gtest/gtest.h>

#include <bit>
#include <chrono>
#include <cstring>
#include <filesystem>

#include "src/io/files.h"
#include "src/report/tensorboard.h"
#include "tests/report/scratch.h"

namespace lft::tensorboard_test {
using namespace lft::io;
using namespace lft::report;
namespace {

std::string unhex(const std::string& hex) {
  std::string bytes;
  for (size_t i = 0; i < hex.size(); i += 2)
    bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  return bytes;
}

/// Splits a file into records, checking each frame.
std::vector<std::string> records(std::string_view bytes) {
  std::vector<std::string> out;
  while (!bytes.empty()) {
    uint64_t length = 0;
    std::memcpy(&length, bytes.data(), sizeof length);
    const std::string data(bytes.substr(12, length));
    EXPECT_EQ(bytes.substr(0, 16 + length), tfrecord(data));
    out.push_back(data);
    bytes.remove_prefix(16 + length);
  }
  return out;
}

std::string only_file(const std::string& dir) {
  std::string found;
  for (const auto& entry : std::filesystem::directory_iterator(dir)) {
    EXPECT_TRUE(found.empty());
    found = entry.path().string();
  }
  return found;
}

TEST(TensorBoard, Crc32cKnownAnswers) {  // RFC 3720 B.4, and the check value of the polynomial
  EXPECT_EQ(crc32c("123456789"), 0xe3069283u);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aau);
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62a8ab43u);
  EXPECT_EQ(crc32c(""), 0u);
}

TEST(TensorBoard, RecordFrameIsThatOfRecordWriter) {
  EXPECT_EQ(tfrecord("abc"), unhex("0300000000000000b099490e6162636e57f121"));
}

TEST(TensorBoard, FileHoldsVersionThenScalars) {
  const test::Scratch scratch;
  const double before =
      std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  {
    TensorBoardWriter writer(scratch.path("tb/run"));
    EXPECT_EQ(records(read_file(only_file(scratch.path("tb/run")))).size(),
              1u);  // readers find a valid file at once
    writer.scalar("train/loss", 300, 0.25);
    writer.flush();
    EXPECT_EQ(records(read_file(only_file(scratch.path("tb/run")))).size(), 2u);
    writer.scalar("train/lr", 301, 2e-4);
  }
  const std::string path = only_file(scratch.path("tb/run"));
  EXPECT_NE(path.find("/events.out.tfevents."), std::string::npos);
  const auto events = records(read_file(path));
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[0].substr(9), unhex("1000") + "\x1a\x0d" + "brain.Event:2");
  // Event(step=300, summary=Summary(value=[Value(tag="train/loss", simple_value=0.25)])) after its
  // wall_time.
  EXPECT_EQ(events[1].substr(9), unhex("10ac022a130a110a0a747261696e2f6c6f7373150000803e"));
  for (const std::string& event : events) {
    EXPECT_EQ(event[0], '\x09');
    double wall_time = 0;
    std::memcpy(&wall_time, event.data() + 1, sizeof wall_time);
    EXPECT_GE(wall_time, before);
    EXPECT_LT(wall_time, before + 600);
  }
}

TEST(TensorBoard, AWriterThatGoesOnPurgesWhatWasWrittenOfLaterSteps) {
  const test::Scratch scratch;
  { const TensorBoardWriter writer(scratch.path("tb"), 300); }
  const auto events = records(read_file(only_file(scratch.path("tb"))));
  ASSERT_EQ(events.size(), 2u);
  // Event(step=300, session_log=SessionLog(status=START)) after its wall_time.
  EXPECT_EQ(events[1].substr(9), unhex("10ac023a020801"));
}

// Summaries of tensorboard.plugins.hparams (2.21): experiment, session start and session end.
TEST(TensorBoard, HyperParametersAreTheSummariesOfItsPlugin) {
  const std::vector<HParam> both = {{"optim.lr", 0.25}, {"model.path", "a"}};
  EXPECT_EQ(hparams_experiment(both, {"eval/loss"}, 100.5),
            unhex("0a650a145f68706172616d735f2f6578706572696d656e7442060801120212004a450a430a076870"
                  "6172616d7312381236190000000000205940220c0a086f7074696d2e6c722003220e0a0a6d6f6465"
                  "6c2e7061746820012a0d0a0b12096576616c2f6c6f7373"));
  EXPECT_EQ(hparams_start({{"optim.lr", 0.25}}, 100.5),
            unhex("0a570a1c5f68706172616d735f2f73657373696f6e5f73746172745f696e666f42060801120212"
                  "004a2f0a2d0a0768706172616d7312221a200a150a086f7074696d2e6c72120911000000000000d0"
                  "3f290000000000205940"));
  EXPECT_EQ(hparams_end(/*success=*/true, 100.5),
            unhex("0a400a1a5f68706172616d735f2f73657373696f6e5f656e645f696e666f42060801120212004a"
                  "1a0a180a0768706172616d73120d220b0801110000000000205940"));
  const test::Scratch scratch;
  {
    TensorBoardWriter writer(scratch.path("tb"));
    writer.hparams(both, {"eval/loss"});
    writer.hparams_done(false);
  }
  const auto events = records(read_file(only_file(scratch.path("tb"))));
  ASSERT_EQ(events.size(), 4u);
  for (size_t i = 1; i < 4; ++i) EXPECT_EQ(events[i].substr(9, 3), unhex("10002a")) << "at step 0";
}

/// TensorBoard reads files in the order of their names, and a run killed before its first
/// checkpoint restarts at step 1.
TEST(TensorBoard, ALaterWriterComesLaterInTheFolderAndPurgesFromStepOne) {
  const test::Scratch scratch;
  const std::string dir = scratch.path("tb");
  make_dirs(dir);
  write_file_atomic(dir + "/events.out.tfevents.9000000000.host.99999.0", "");
  { const TensorBoardWriter writer(dir); }
  { const TensorBoardWriter writer(dir); }
  const std::vector<std::string> names = list_dir(dir);
  ASSERT_EQ(names.size(), 3u);
  EXPECT_TRUE(names[1].starts_with("events.out.tfevents.9000000001.")) << names[1];
  EXPECT_TRUE(names[2].starts_with("events.out.tfevents.9000000002.")) << names[2];
  for (const std::string& name : {names[1], names[2]}) {
    const auto events = records(read_file(dir + "/" + name));
    ASSERT_EQ(events.size(), 2u);
    EXPECT_EQ(events[1].substr(9), unhex("10013a020801"));
  }
}

TEST(TensorBoard, TwoWritersInOneFolderHaveTheirOwnFiles) {
  const test::Scratch scratch;
  { const TensorBoardWriter first(scratch.path("tb")), second(scratch.path("tb")); }
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(scratch.path("tb")))
    files += entry.is_regular_file() ? 1 : 0;
  EXPECT_EQ(files, 2);
}

}  // namespace
}  // namespace lft::tensorboard_test
