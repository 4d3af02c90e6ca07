// Saving and loading: data round-trips bit for bit, old steps are deleted in the right order, and a
// run is recognised as the same.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <filesystem>
#include <limits>
#include <regex>
#include <thread>

#include "checkpoint/support.h"
#include "src/base/hash.h"
#include "src/io/safetensors.h"

namespace lft::checkpoint_test {
using namespace lft::checkpoint;
using namespace lft::io;
using namespace lft::recipe;
namespace {

using test::expect_same;
using test::names_in;
using test::put_bytes;
using test::slurp;
using test::small_checkpoint;
using test::small_recipe;
using test::TempDir;
using Names = std::vector<std::string>;

void damage(const std::string& step_path) { put_bytes(step_path + "/state.json", "{}"); }

Checkpoint newest(const std::string& dir, Names* warnings) {
  std::optional<Checkpoint> checkpoint = load_newest(dir, warnings);
  return checkpoint ? *checkpoint : Checkpoint{};
}

TEST(Checkpoint, ComesBackBitForBit) {
  const TempDir dir;
  const Checkpoint saved = small_checkpoint(3);
  save_checkpoint(dir.file("run/checkpoints"), saved, 2);
  expect_same(load_checkpoint(dir.file("run/checkpoints/step-3")), saved);
  expect_same(load_checkpoint(dir.file("run/./checkpoints/step-3/")), saved);
  EXPECT_EQ(names_in(dir.file("run/checkpoints")), Names{"step-3"});
  EXPECT_EQ(names_in(dir.file("run/checkpoints/step-3")),
            (Names{"MANIFEST", "optimizer.safetensors", "recipe.yaml", "state.json",
                   "trainables.safetensors"}));
}

TEST(Checkpoint, NothingTrainedYetIsACheckpointToo) {
  const TempDir dir;
  Checkpoint empty;
  save_checkpoint(dir.path(), empty, 1);
  expect_same(load_checkpoint(dir.file("step-0")), empty);
}

TEST(Checkpoint, TheSameCheckpointGivesTheSameBytes) {
  const TempDir dir;
  for (const char* run : {"a", "b"}) save_checkpoint(dir.file(run), small_checkpoint(3), 2);
  for (const std::string& name : names_in(dir.file("a/step-3")))
    EXPECT_EQ(slurp(dir.file("a/step-3/" + name)), slurp(dir.file("b/step-3/" + name))) << name;
}

TEST(Checkpoint, OtherReadersOpenTheTensors) {
  const TempDir dir;
  save_checkpoint(dir.path(), small_checkpoint(3), 2);
  const SafetensorsFile file(dir.file("step-3/trainables.safetensors"));
  EXPECT_EQ(file.tensors().size(), 7u);
  EXPECT_EQ(file.info("none").shape, (std::vector<int64_t>{0, 4}));
}

TEST(Checkpoint, ManifestEndsWithItsOwnHash) {
  const TempDir dir;
  save_checkpoint(dir.path(), small_checkpoint(3), 2);
  const std::string text = slurp(dir.file("step-3/MANIFEST"));
  const size_t last = text.rfind("sha256 ");
  EXPECT_EQ(text.substr(last), "sha256 " + sha256(text.substr(0, last)) + "\n");
  const Json json = Json::parse(text.substr(0, last));
  EXPECT_EQ(json["version"], 1);
  EXPECT_EQ(json["step"], 3);
  EXPECT_EQ(json["run_id"], "20250131-235959-1a2b3c4d");
  EXPECT_EQ(json["identity"]["data"], "d0");
  EXPECT_EQ(json["environment"]["cpu"], "one");
  ASSERT_EQ(json["files"].size(), 4u);
  for (const Json& file : json["files"]) {
    const std::string bytes = slurp(dir.file("step-3/" + file["name"].get<std::string>()));
    EXPECT_EQ(file["bytes"], bytes.size());
    EXPECT_EQ(file["sha256"], sha256(bytes));
  }
}

TEST(Checkpoint, ANonFiniteTensorIsNeverWritten) {
  const TempDir dir;
  save_checkpoint(dir.path(), small_checkpoint(1), 2);
  for (const double bad : {double{NAN}, double{INFINITY}, -double{INFINITY}}) {
    Checkpoint poisoned = small_checkpoint(2);
    poisoned.trainables["layers.0.lora_A"][2][4] = bad;
    EXPECT_LFT_ERROR(ErrorKind::kNumeric, "layers.0.lora_A",
                     save_checkpoint(dir.path(), poisoned, 2));
    EXPECT_LFT_ERROR(ErrorKind::kNumeric, "at flat index 14 of [3, 5]",
                     save_checkpoint(dir.path(), poisoned, 2));
    poisoned = small_checkpoint(2);
    poisoned.moments["exp_avg_sq.layers.0.lora_A"][0][0] = bad;
    EXPECT_LFT_ERROR(ErrorKind::kNumeric, "exp_avg_sq.layers.0.lora_A",
                     save_checkpoint(dir.path(), poisoned, 2));
  }
  EXPECT_EQ(names_in(dir.path()), Names{"step-1"});
}

TEST(Checkpoint, AStateThatWouldNotReadBackIsABug) {
  const TempDir dir;
  Checkpoint checkpoint = small_checkpoint(1);
  checkpoint.state["loss"] = NAN;
  EXPECT_LFT_ERROR(ErrorKind::kInternal, "state.json", save_checkpoint(dir.path(), checkpoint, 2));
  checkpoint.state["loss"] = "\xff";
  EXPECT_LFT_ERROR(ErrorKind::kInternal, "state.json", save_checkpoint(dir.path(), checkpoint, 2));
  checkpoint = small_checkpoint(1);
  checkpoint.identity["base"] = INFINITY;
  EXPECT_LFT_ERROR(ErrorKind::kInternal, "MANIFEST", save_checkpoint(dir.path(), checkpoint, 2));
  EXPECT_EQ(names_in(dir.path()), Names{});
}

TEST(Checkpoint, KeepCountsOnlyStepsThatVerify) {  // guarantee A8
  const TempDir dir;
  for (const int64_t step : {1, 2, 3, 4}) save_checkpoint(dir.path(), small_checkpoint(step), 10);
  damage(dir.file("step-3"));
  damage(dir.file("step-4"));
  Names warnings;
  EXPECT_EQ(newest(dir.path(), &warnings).step, 2);
  EXPECT_EQ(warnings.size(), 2u);
  save_checkpoint(dir.path(), small_checkpoint(5), 3);
  EXPECT_EQ(names_in(dir.path()), (Names{"step-1", "step-2", "step-5"}));
}

TEST(Checkpoint, BrokenNewerStepsGoAndTheGoodOneStays) {  // guarantee A8: two broken newer
                                                          // directories under keep = 2
  const TempDir dir;
  for (const int64_t step : {1, 8, 9}) save_checkpoint(dir.path(), small_checkpoint(step), 10);
  damage(dir.file("step-8"));
  std::filesystem::remove(dir.file("step-9/MANIFEST"));
  save_checkpoint(dir.path(), small_checkpoint(2), 2);
  EXPECT_EQ(names_in(dir.path()), (Names{"step-1", "step-2"}));
}

TEST(Checkpoint, KeepOneLeavesTheNewest) {
  const TempDir dir;
  for (const int64_t step : {1, 2, 10}) save_checkpoint(dir.path(), small_checkpoint(step), 1);
  EXPECT_EQ(names_in(dir.path()), Names{"step-10"});
}

TEST(Checkpoint, StepZeroStaysBesideTheNewestUnlessItIsBroken) {
  const TempDir dir;
  for (const int64_t step : {0, 1, 2, 10}) save_checkpoint(dir.path(), small_checkpoint(step), 2);
  EXPECT_EQ(names_in(dir.path()), (Names{"step-0", "step-10", "step-2"}));
  damage(dir.file("step-0"));
  save_checkpoint(dir.path(), small_checkpoint(11), 2);
  EXPECT_EQ(names_in(dir.path()), (Names{"step-10", "step-11"}));
}

TEST(Checkpoint, AVerifiedNewerStepIsNotDeletedByAnOlderOne) {
  const TempDir dir;
  save_checkpoint(dir.path(), small_checkpoint(10), 1);
  save_checkpoint(dir.path(), small_checkpoint(5), 1);
  EXPECT_EQ(names_in(dir.path()), (Names{"step-10", "step-5"}));
}

TEST(Checkpoint, LeftoversOfKilledRunsAreClearedAndNeverTrusted) {
  const TempDir dir;
  save_checkpoint(dir.path(), small_checkpoint(1), 2);
  std::filesystem::copy(dir.file("step-1"), dir.file(".dead-step-7"));
  std::filesystem::copy(dir.file("step-1"), dir.file(".tmp-9"));
  Names warnings;
  EXPECT_EQ(newest(dir.path(), &warnings).step, 1);
  EXPECT_EQ(list_checkpoints(dir.path(), true).size(), 1u);
  save_checkpoint(dir.path(), small_checkpoint(2), 2);
  EXPECT_EQ(names_in(dir.path()), (Names{"step-1", "step-2"}));
}

TEST(Checkpoint, SavingTheSameStepAgainKeepsIt) {
  const TempDir dir;
  save_checkpoint(dir.path(), small_checkpoint(3), 2);
  struct stat before {
  }, after{};
  ASSERT_EQ(stat(dir.file("step-3/MANIFEST").c_str(), &before), 0);
  save_checkpoint(dir.path(), small_checkpoint(3), 2);
  ASSERT_EQ(stat(dir.file("step-3/MANIFEST").c_str(), &after), 0);
  EXPECT_EQ(before.st_ino, after.st_ino);
  EXPECT_EQ(names_in(dir.path()), Names{"step-3"});
}

TEST(Checkpoint, SavingAStepWithOtherNumbersReplacesIt) {
  const TempDir dir;
  save_checkpoint(dir.path(), small_checkpoint(3), 2);
  Checkpoint other = small_checkpoint(3);
  other.state["metrics_offset"] = 17;
  save_checkpoint(dir.path(), other, 2);
  expect_same(load_checkpoint(dir.file("step-3")), other);
  EXPECT_EQ(names_in(dir.path()), Names{"step-3"});
}

TEST(Checkpoint, ABrokenStepIsReplaced) {
  const TempDir dir;
  save_checkpoint(dir.path(), small_checkpoint(3), 2);
  damage(dir.file("step-3"));
  save_checkpoint(dir.path(), small_checkpoint(3), 2);
  expect_same(load_checkpoint(dir.file("step-3")), small_checkpoint(3));
  put_bytes(dir.file("step-4"), "a file");
  save_checkpoint(dir.path(), small_checkpoint(4), 2);
  EXPECT_EQ(names_in(dir.path()), (Names{"step-3", "step-4"}));
}

TEST(Checkpoint, ADisplacedStepStandsInForASuccessorThatIsNotThere) {
  const TempDir dir;
  save_checkpoint(dir.path(), small_checkpoint(3), 2);
  std::filesystem::rename(dir.file("step-3"), dir.file("step-3~"));
  Names warnings;
  EXPECT_EQ(newest(dir.path(), &warnings).step, 3);
  EXPECT_TRUE(warnings.empty());
  std::filesystem::copy(dir.file("step-3~"), dir.file("step-3"));
  damage(dir.file("step-3"));
  EXPECT_EQ(newest(dir.path(), &warnings).step, 3);
  EXPECT_EQ(warnings.size(), 1u);
  save_checkpoint(dir.path(), small_checkpoint(4), 2);
  EXPECT_EQ(names_in(dir.path()), (Names{"step-3~", "step-4"}));
  save_checkpoint(dir.path(), small_checkpoint(3), 2);
  EXPECT_EQ(names_in(dir.path()), (Names{"step-3", "step-4"}));
}

TEST(Checkpoint, AnotherRunsFolderIsLeftAlone) {
  const TempDir dir;
  save_checkpoint(dir.path(), small_checkpoint(3), 2);
  Checkpoint other = small_checkpoint(4);
  other.run_id = "another";
  EXPECT_LFT_ERROR(ErrorKind::kUsage, "run 20250131-235959-1a2b3c4d",
                   save_checkpoint(dir.path(), other, 2));
  EXPECT_EQ(names_in(dir.path()), Names{"step-3"});
}

TEST(Checkpoint, ListsNewestFirstWithSizesAndFaults) {
  const TempDir dir;
  for (const int64_t step : {2, 10, 9}) save_checkpoint(dir.path(), small_checkpoint(step), 10);
  damage(dir.file("step-9"));
  dir.write("step-x/notes.txt", "not a step");
  const std::vector<CheckpointStatus> list = list_checkpoints(dir.path(), true);
  ASSERT_EQ(list.size(), 3u);
  EXPECT_EQ(list[0].step, 10);
  EXPECT_EQ(list[1].step, 9);
  EXPECT_EQ(list[2].step, 2);
  EXPECT_EQ(list[0].fault, "");
  EXPECT_EQ(list[0].run_id, "20250131-235959-1a2b3c4d");
  uint64_t bytes = 0;
  for (const std::string& name : names_in(dir.file("step-10")))
    bytes += slurp(dir.file("step-10/" + name)).size();
  EXPECT_EQ(list[0].bytes, bytes);
  EXPECT_NEAR(static_cast<double>(list[0].saved_at), static_cast<double>(time(nullptr)), 60);
  EXPECT_NE(list[1].fault.find("found 2 bytes, sha256 " + sha256("{}")), std::string::npos)
      << list[1].fault;
  EXPECT_NE(list[1].fault.find("state.json"), std::string::npos);
  EXPECT_EQ(list_checkpoints(dir.path(), false)[1].fault, "");  // only MANIFEST is complete
  EXPECT_EQ(list_checkpoints(dir.file("none"), true).size(), 0u);
}

TEST(Checkpoint, ListingBesideARunThatSavesSeesNoFault) {
  const TempDir dir;
  save_checkpoint(dir.path(), small_checkpoint(1), 1);
  std::atomic<bool> done{false};
  std::thread saver([&] {
    for (int64_t step = 2; step < 40; ++step)
      save_checkpoint(dir.path(), small_checkpoint(step), 1);
    done = true;
  });
  int64_t seen = 0;
  while (!done) {
    const std::vector<CheckpointStatus> list = list_checkpoints(dir.path(), true);
    EXPECT_FALSE(list.empty());
    for (const CheckpointStatus& status : list) EXPECT_EQ(status.fault, "");
    EXPECT_GE(list.empty() ? seen : list.front().step, seen);
    seen = list.empty() ? seen : list.front().step;
  }
  saver.join();
  EXPECT_EQ(list_checkpoints(dir.path(), true).front().step, 39);
}

TEST(Checkpoint, AFolderThatCannotBeWrittenIsAResource) {  // guarantee A11
  const TempDir dir;
  dir.write("file", "x");
  EXPECT_LFT_ERROR(ErrorKind::kResource, dir.file("file"),
                   save_checkpoint(dir.file("file"), small_checkpoint(1), 1));
  EXPECT_LFT_ERROR(ErrorKind::kResource, "/proc/",
                   save_checkpoint("/proc/lft-checkpoints", small_checkpoint(1), 1));
}

TEST(Identity, TheSameRunPasses) {
  const Checkpoint checkpoint = small_checkpoint(3);
  EXPECT_NO_THROW(check_identity(checkpoint, checkpoint.identity, small_recipe()));
}

TEST(Identity, EachChangeIsNamedWithBothValues) {  // guarantee A9
  const Checkpoint checkpoint = small_checkpoint(3);
  for (const char* key : {"base", "data", "tokenizer"}) {
    Json identity = checkpoint.identity;
    identity[key] = "other";
    const std::string line = std::string(key) + ": stored \"" + key[0] + "0\", now \"other\"";
    EXPECT_LFT_ERROR(ErrorKind::kCheckpoint, line,
                     check_identity(checkpoint, identity, small_recipe()));
  }
  Json identity = checkpoint.identity;
  identity["world_size"] = 2;
  EXPECT_LFT_ERROR(ErrorKind::kCheckpoint, "world_size: stored 1, now 2",
                   check_identity(checkpoint, identity, small_recipe()));
  identity.erase("world_size");
  EXPECT_LFT_ERROR(ErrorKind::kCheckpoint, "world_size: stored 1, now nothing",
                   check_identity(checkpoint, identity, small_recipe()));
  identity = checkpoint.identity;
  identity["processor"] = "p";
  EXPECT_LFT_ERROR(ErrorKind::kCheckpoint, "processor: stored nothing, now \"p\"",
                   check_identity(checkpoint, identity, small_recipe()));
}

TEST(Identity, AllChangesStandInOneError) {
  const Checkpoint checkpoint = small_checkpoint(3);
  Json identity = checkpoint.identity;
  identity["data"] = "other";
  Recipe recipe = small_recipe();
  recipe.optim.lr = 1e-3;
  recipe.lora.targets = {"llm:q_proj"};
  recipe.checkpoint.keep = 7;  // may change
  const std::string text = test::thrown_text(
      ErrorKind::kCheckpoint, [&] { check_identity(checkpoint, identity, recipe); }, __FILE__,
      __LINE__);
  EXPECT_NE(text.find("3 differences"), std::string::npos) << text;
  EXPECT_NE(text.find("data: stored \"d0\", now \"other\""), std::string::npos) << text;
  EXPECT_NE(text.find("optim.lr: stored 2.0e-04, now 0.001"), std::string::npos) << text;
  EXPECT_NE(text.find("lora.targets: stored [\"llm:all-linear\"], now [\"llm:q_proj\"]"),
            std::string::npos)
      << text;
  EXPECT_EQ(text.find("keep"), std::string::npos) << text;
}

TEST(Identity, FieldsThatDoNotChangeTheRunMayChange) {
  const Checkpoint checkpoint = small_checkpoint(3);
  Recipe recipe = small_recipe();
  recipe.output_dir = "elsewhere";
  recipe.model.path = "/copied/base";
  recipe.data.train = "/copied/rows.json";
  recipe.data.eval = "val.json";
  recipe.data.workers = 9;
  recipe.train.epochs = 3;
  recipe.train.max_steps = 12;
  recipe.train.eval_every_steps = 2;
  recipe.checkpoint = {.every_steps = 1, .keep = 9, .at_step_zero = false};
  recipe.log = {.every_steps = 9, .layer_grad_norms_every = 0, .tensorboard = false};
  EXPECT_NO_THROW(check_identity(checkpoint, checkpoint.identity, recipe));
}

TEST(Identity, AStoredRecipeThatCannotBeReadIsSaidSo) {
  Checkpoint checkpoint = small_checkpoint(3);
  checkpoint.recipe += "surprise: 1\n";
  EXPECT_LFT_ERROR(ErrorKind::kCheckpoint, "surprise",
                   check_identity(checkpoint, checkpoint.identity, small_recipe()));
}

TEST(Identity, AnotherMachineIsOneLine) {  // guarantee B5
  const Checkpoint checkpoint = small_checkpoint(3);
  EXPECT_EQ(environment_warning(checkpoint, checkpoint.environment), "");
  Json environment = checkpoint.environment;
  environment["libtorch"] = "2.12.0";
  environment["threads"] = 4;
  const std::string line = environment_warning(checkpoint, environment);
  EXPECT_NE(line.find("libtorch was \"2.11.0\" and is \"2.12.0\""), std::string::npos) << line;
  EXPECT_NE(line.find("threads was 2 and is 4"), std::string::npos) << line;
  EXPECT_NE(line.find("bit for bit"), std::string::npos) << line;
  EXPECT_EQ(line.find('\n'), std::string::npos);
}

TEST(RunId, IsShortPrintableAndNew) {
  const std::string a = new_run_id(), b = new_run_id();
  EXPECT_NE(a, b);
  EXPECT_TRUE(std::regex_match(a, std::regex("[0-9]{8}-[0-9]{6}-[0-9a-f]{8}"))) << a;
}

}  // namespace
}  // namespace lft::checkpoint_test
