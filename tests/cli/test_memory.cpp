// Out of memory in the real program: exit 6 and one error block; and lft debug memory.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "cli/run_lft.h"
#include "support/child.h"

namespace lft::test::memory_test {
using namespace lft::recipe;
namespace {

/// Text rows so long, and a batch so large, that a step takes hundreds of megabytes.
class MemoryCli : public ::testing::Test {
 protected:
  MemoryCli() {
    nlohmann::json rows = nlohmann::json::array();
    for (int i = 0; i < 600; ++i) {
      const std::string id = "row" + std::to_string(i);
      rows.push_back({{"id", id},
                      {"conversations",
                       {{{"from", "human"}, {"value", "?"}},
                        {{"from", "gpt"}, {"value", std::string(400, 'a') + id}}}}});
    }
    run_.dir().write("rows.json", rows.dump());
    one_row_ = run_.dir().write("one.json", nlohmann::json::array({rows[0]}).dump());
  }
  std::string recipe(const std::string& out, int64_t batch) const {
    Recipe recipe = run_.recipe(out);
    recipe.full.clear();
    recipe.data.eval = one_row_;  // prompts of the report
    recipe.data.workers = 1;
    recipe.train.batch_size = batch;
    recipe.train.max_steps = 2;
    run_.dir().write(out + ".yaml", dump_recipe(recipe));
    return run_.dir().file(out + ".yaml");
  }
  /// Runs under RLIMIT_AS of this many kilobytes; 0: none.
  Ran train(const std::string& recipe, int64_t kilobytes) const {
    return limited("train " + recipe, kilobytes);
  }
  Ran limited(const std::string& arguments, int64_t kilobytes) const {
    const std::string err = run_.dir().file("err"), out = run_.dir().file("out");
    const std::string limit = kilobytes > 0 ? "ulimit -v " + std::to_string(kilobytes) + "; " : "";
    Child child(
        {"/bin/sh", "-c", limit + "OMP_NUM_THREADS=1 exec " LFT_BINARY_DIR "/lft " + arguments},
        out, err);
    Ran ran;
    ran.code = child.wait();
    ran.out = slurp(out);
    ran.err = slurp(err);
    return ran;
  }
  const TinyRun run_;
  std::string one_row_;
};

TEST_F(MemoryCli, ExitsWithSixAndOneBlock) {
  // The smallest address space in which a small batch trains, to 256 MiB; the large one needs a
  // gigabyte more.
  int64_t too_little = 0, enough = 16 << 20;
  while (enough - too_little > 256 << 10) {
    const int64_t middle = (too_little + enough) / 2;
    (train(recipe("small" + std::to_string(middle), 2), middle).code == 0 ? enough : too_little) =
        middle;
  }
  ASSERT_LT(enough, 16 << 20);
  int rehearsed = 0;
  for (int64_t room = 0; room <= 3; ++room) {
    const Ran ran = train(recipe("large" + std::to_string(room), 600), enough + (room << 17));
    EXPECT_EQ(ran.code, 6) << ran.err;
    EXPECT_EQ(ran.count("error:"), 1) << ran.err;
    EXPECT_NE(ran.err.find("error: out of memory on cpu: "), std::string::npos) << ran.err;
    rehearsed += ran.err.find(" asked for, ") != std::string::npos ? 1 : 0;
    EXPECT_FALSE(std::filesystem::exists(
        run_.dir().file("large" + std::to_string(room) + "/metrics.jsonl")));
  }
  EXPECT_GE(rehearsed, 1);
}

/// From too little to open the model to enough: each run succeeds or reports out of memory,
/// and nothing else.
TEST_F(MemoryCli, EvalAndCheckSayItToo) {
  const std::string small = recipe("small", 2);
  const std::string commands[] = {"check " + small,
                                  "eval --model " + run_.model() +
                                      " --template plain --max-new-tokens 1 --data " +
                                      run_.dir().file("few.json")};
  nlohmann::json rows = nlohmann::json::parse(slurp(run_.dir().file("rows.json")));
  rows.erase(rows.begin() + 8, rows.end());
  run_.dir().write("few.json", rows.dump());
  for (const std::string& command : commands) {
    const int64_t step = 4 << 10;
    int64_t too_little = 0, enough = 16 << 20;
    while (enough - too_little > step) {  // what the program itself needs
      const int64_t middle = (too_little + enough) / 2;
      (limited("--version", middle).code == 0 ? enough : too_little) = middle;
    }
    int ran_out = 0;
    for (Ran ran = limited(command, enough); ran.code != 0;
         ran = limited(command, enough += step)) {
      ASSERT_LT(enough, 16 << 20) << ran.err;
      EXPECT_EQ(ran.code, 6) << enough << ": " << ran.err;
      EXPECT_EQ(ran.count("error:"), 1) << ran.err;
      ran_out += ran.code == 6;
    }
    EXPECT_GE(ran_out, 1) << command;
  }
}

TEST_F(MemoryCli, DebugMemoryDrawsAndWritesNothingElse) {
  const std::string page = run_.dir().file("picture.html");
  const Ran ran = run_lft("debug memory " + recipe("drawn", 4) +
                          " --steps 3 --set train.max_steps=5 --out " + page);
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_NE(ran.out.find("peak       "), std::string::npos) << ran.out;
  EXPECT_NE(ran.out.find("leak       none"), std::string::npos) << ran.out;
  EXPECT_TRUE(std::filesystem::exists(page));
  EXPECT_FALSE(std::filesystem::exists(run_.dir().file("drawn")));
  EXPECT_EQ(run_lft("debug memory " + recipe("zero", 4) + " --steps 0").code, 2);
}

}  // namespace
}  // namespace lft::test::memory_test
