// Saving under every fault at every call: earlier commits stay, incomplete saves are never
// trusted, and the next start continues.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <map>

#include "checkpoint/support.h"
#include "faults/support.h"

namespace lft::test::save_faults_test {
using namespace lft::checkpoint;
using namespace lft::io;
namespace {

/// A run that saves these in order. On a relaunch it resumes from the newest save and
/// saves that again.
struct Scenario {
  const char* name;
  std::vector<Checkpoint> saves;
  int64_t keep;
  std::vector<std::string> names;  // remaining at the end
};

Checkpoint changed(int64_t step) {
  Checkpoint checkpoint = small_checkpoint(step);
  checkpoint.state["metrics_offset"] = 17;
  return checkpoint;
}

/// Commit, replace the only step, retire.
Scenario keep_one() {
  return {"keep one", {small_checkpoint(1), changed(1), small_checkpoint(2)}, 1, {"step-2"}};
}
Scenario keep_two() {
  return {"keep two",
          {small_checkpoint(1), small_checkpoint(2), small_checkpoint(3)},
          2,
          {"step-2", "step-3"}};
}

/// A number shared between a forked child and its parent.
class Shared {
 public:
  Shared()
      : value_(static_cast<int*>(mmap(nullptr, sizeof(int), PROT_READ | PROT_WRITE,
                                      MAP_SHARED | MAP_ANONYMOUS, -1, 0))) {}
  ~Shared() { munmap(value_, sizeof(int)); }
  int& operator*() const { return *value_; }

 private:
  int* value_;
};

/// One scenario in a new folder, with the fault and then without it.
class SavedUnder {
 public:
  SavedUnder(const Scenario& scenario, const std::string& mode, long at) : scenario_(scenario) {
    *committed_ = 0;
    faulty = fork_shimmed({dir_.path(), mode, at}, [&] { save_from(0); });
  }

  /// What a start would find now: the index of the newest save that verifies, or -1.
  int newest() const {
    for (const CheckpointStatus& status : list_checkpoints(steps(), /*verify=*/true))
      EXPECT_EQ(status.fault, "") << status.path;
    std::vector<std::string> warnings;
    const std::optional<Checkpoint> found = load_newest(steps(), &warnings);
    EXPECT_TRUE(warnings.empty());
    if (!found) return -1;
    for (int i = static_cast<int>(scenario_.saves.size()); i-- > 0;) {
      const Checkpoint& saved = scenario_.saves[static_cast<size_t>(i)];
      if (saved.step != found->step || saved.state != found->state) continue;
      expect_same(*found, saved);
      return i;
    }
    ADD_FAILURE() << "step " << found->step << " was never saved";
    return -1;
  }

  void expect_nothing_lost() const { EXPECT_GE(newest(), *committed_ - 1); }

  void expect_relaunch_succeeds() {
    const int from = newest();
    const Shimmed again =
        fork_shimmed({dir_.path(), "count", 0}, [&] { save_from(std::max(from, 0)); });
    EXPECT_EQ(again.code, 0) << again.err;
    EXPECT_EQ(newest(), static_cast<int>(scenario_.saves.size()) - 1);
    EXPECT_EQ(list_dir(steps()), scenario_.names);
  }

  void expect_no_temporary() const {
    if (!path_exists(steps())) return;
    for (const std::string& name : list_dir(steps()))
      EXPECT_FALSE(name.starts_with(".tmp-")) << name;
  }

  std::map<std::string, std::string> bytes() const {
    std::map<std::string, std::string> all;
    for (const std::string& step : list_dir(steps())) {
      for (const std::string& name : list_dir(steps() + "/" + step))
        all[step + "/" + name] = slurp(steps() + "/" + step + "/" + name);
    }
    return all;
  }

  std::string root() const { return dir_.path(); }

  Shimmed faulty;

 private:
  std::string steps() const { return dir_.file("checkpoints"); }
  void save_from(int first) const {
    for (size_t i = static_cast<size_t>(first); i < scenario_.saves.size(); ++i) {
      save_checkpoint(steps(), scenario_.saves[i], scenario_.keep);
      *committed_ = static_cast<int>(i) + 1;
    }
  }

  const Scenario scenario_;
  TempDir dir_;
  Shared committed_;
};

/// Every call in order.
void at_every_call(const Scenario& scenario, const std::string& mode,
                   const std::function<void(SavedUnder&)>& check) {
  const long calls = SavedUnder(scenario, "count", 0).faulty.calls;
  ASSERT_GE(calls, 60);
  for (long k = 1; k <= calls && !::testing::Test::HasFailure(); ++k) {
    SCOPED_TRACE(mode + " at call " + std::to_string(k) + " of " + std::to_string(calls) + ", " +
                 scenario.name);
    SavedUnder run(scenario, mode, k);
    check(run);
  }
}

void expect_survives(const Scenario& scenario, const std::string& mode) {
  at_every_call(scenario, mode, [](SavedUnder& run) {
    EXPECT_EQ(run.faulty.code, 128 + SIGKILL);
    run.expect_nothing_lost();
    run.expect_relaunch_succeeds();
  });
}

TEST(SaveFaults, KilledAnywhere) {  // guarantee A1
  expect_survives(keep_one(), "kill");
  expect_survives(keep_two(), "kill");
}

TEST(SaveFaults, PowerCutAnywhere) {  // guarantee A1
  expect_survives(keep_one(), "power");
  expect_survives(keep_two(), "power");
}

TEST(SaveFaults, PowerCutAfterTheNamesReachedTheDisk) {
  expect_survives(keep_one(), "powerdata");
}  // guarantee A1

TEST(SaveFaults, DiskFullAnywhere) {  // guarantee A3
  int refused = 0;
  at_every_call(keep_one(), "enospc", [&](SavedUnder& run) {
    if (run.faulty.code != 0) {
      ++refused;
      EXPECT_EQ(run.faulty.code, 6) << run.faulty.err;
      EXPECT_EQ(run.faulty.errors(), 1) << run.faulty.err;
      EXPECT_NE(run.faulty.err.find("bytes needed"), std::string::npos) << run.faulty.err;
      EXPECT_NE(run.faulty.err.find("bytes free"), std::string::npos) << run.faulty.err;
      EXPECT_NE(run.faulty.err.find("where: " + run.root()), std::string::npos) << run.faulty.err;
    }
    run.expect_no_temporary();
    run.expect_nothing_lost();
    run.expect_relaunch_succeeds();
  });
  EXPECT_GE(refused, 40);
}

TEST(SaveFaults, IoErrorAnywhere) {  // guarantee A5: never retried and reported as success
  at_every_call(keep_one(), "eio", [](SavedUnder& run) {
    EXPECT_EQ(run.faulty.code, 6) << run.faulty.err;
    EXPECT_EQ(run.faulty.errors(), 1) << run.faulty.err;
    run.expect_no_temporary();
    run.expect_nothing_lost();
    run.expect_relaunch_succeeds();
  });
}

TEST(SaveFaults, ShortAndInterruptedCallsChangeNothing) {  // guarantee A5
  const auto clean = SavedUnder(keep_one(), "count", 0).bytes();
  for (const char* mode : {"short", "eintr"}) {
    at_every_call(keep_one(), mode, [&](SavedUnder& run) {
      EXPECT_EQ(run.faulty.code, 0) << run.faulty.err;
      EXPECT_EQ(run.bytes(), clean);
    });
  }
}

}  // namespace
}  // namespace lft::test::save_faults_test
