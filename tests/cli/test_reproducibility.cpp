// determinism, diff, verify-resume and doctor as run by a user, in separate processes.
#include <gtest/gtest.h>

#include <filesystem>

#include "cli/run_lft.h"
#include "src/base/hash.h"
#include "support/child.h"
#include "train/run_files.h"

namespace lft::test::reproducibility_test {
using namespace lft::io;
using namespace lft::recipe;
namespace {

namespace fs = std::filesystem;

#define EXPECT_PIECE(text, piece) \
  EXPECT_NE((text).find(piece), std::string::npos) << "no \"" << (piece) << "\" in:\n" << (text)

class Reproducibility : public ::testing::Test {
 protected:
  Recipe recipe(const std::string& out) const {
    Recipe recipe = run_.recipe(out);
    recipe.data.eval.clear();
    recipe.train.max_steps = 4;
    return recipe;
  }
  std::string written(const Recipe& recipe, const std::string& name) const {
    return run_.dir().write(name, dump_recipe(recipe));
  }
  static int64_t entries(const std::string& dir) {
    return std::distance(fs::directory_iterator(dir), fs::directory_iterator());
  }

  const TinyRun run_{10};
};

TEST_F(Reproducibility, DeterminismComparesThreeProcessesAndWritesNothing) {
  const std::string file = written(recipe("out"), "r.yaml");
  const int64_t before = entries(run_.dir().path());
  const Ran ran = run_lft("debug determinism " + file + " --steps 2 --set data.workers=2");
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_PIECE(ran.out, "equal      two runs of one recipe: ");
  EXPECT_PIECE(ran.out, "tensors in 2 steps");
  EXPECT_PIECE(ran.out, "with 2 and with 1 data workers");
  EXPECT_PIECE(ran.out, "it is deterministic");
  EXPECT_EQ(entries(run_.dir().path()), before);
}

TEST_F(Reproducibility, AFailureInAProcessOfItsOwnKeepsItsCodeAndMessage) {
  Recipe bad = recipe("out");
  bad.lora.targets = {"llm:no_such_layer"};
  const Ran ran = run_lft("debug determinism " + written(bad, "r.yaml"));
  EXPECT_EQ(ran.code, 2);
  EXPECT_EQ(ran.count("error:"), 1) << ran.err;
  EXPECT_PIECE(ran.err, "no_such_layer");
  EXPECT_PIECE(ran.err, "run-a");
  const Ran verify = run_lft("verify-resume " + written(bad, "r.yaml"));
  EXPECT_EQ(verify.code, 2);
  EXPECT_EQ(verify.count("error:"), 1) << verify.err;
}

TEST_F(Reproducibility, DiffExitsWithFiveWhereRunsPart) {
  Recipe b = recipe("b");
  b.optim.lr = 5e-3;
  ASSERT_EQ(run_lft("train " + written(recipe("a"), "a.yaml")).code, 0);
  ASSERT_EQ(run_lft("train " + written(b, "b.yaml")).code, 0);
  const std::string dir = run_.dir().path();
  const Ran parted = run_lft("debug diff " + dir + "/a " + dir + "/b");
  EXPECT_EQ(parted.code, 5) << parted.err;
  EXPECT_EQ(parted.count("error:"), 1);
  EXPECT_PIECE(parted.out, "recipe      optim.lr: 0.01 in A, 0.005 in B");
  EXPECT_PIECE(parted.err, "the learning rate parts");
  const Ran same = run_lft("debug diff " + dir + "/a " + dir + "/a");
  EXPECT_EQ(same.code, 0) << same.err;
  EXPECT_PIECE(same.out, "equal       in all 4 steps");
  EXPECT_EQ(run_lft("debug diff " + dir + "/a " + dir + "/model").code, 3);
}

TEST_F(Reproducibility, VerifyResumeIssuesACertificateOverRealProcesses) {
  const Recipe trained = recipe("out");
  const std::string file = written(trained, "r.yaml");
  ASSERT_EQ(run_lft("train " + file).code, 0);  // the output directory may contain a run
  const std::string adapter =
      sha256_file(trained.output_dir + "/adapter/adapter_model.safetensors");
  const int64_t before = entries(run_.dir().path());
  const Ran ran =
      run_lft("verify-resume " + file + " --steps 2 --out " + run_.dir().file("certificate.json"));
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_PIECE(ran.out, "\"verdict\": \"identical\"");
  const Json certificate = Json::parse(slurp(run_.dir().file("certificate.json")));
  bool found = false;
  for (const Json& each : certificate["compared"]) found = found || each["sha256"] == adapter;
  EXPECT_TRUE(found) << "the adapter of the whole run, which has as many steps";
  EXPECT_EQ(entries(run_.dir().path()), before + 1);
}

TEST_F(Reproducibility, AStoppedVerificationStopsItsProcessAndCleansUp) {
  Recipe endless = recipe("out");
  endless.train.max_steps = 1'000'000;
  const std::string file = written(endless, "r.yaml");
  const int64_t before = entries(run_.dir().path());
  const TempDir logs;
  const auto scratch = [&]() -> std::string {
    for (const auto& entry : fs::directory_iterator(run_.dir().path())) {
      if (entry.path().filename().string().starts_with("out.verify-resume-")) return entry.path();
    }
    return "";
  };
  Child child({LFT_BINARY_DIR "/lft", "verify-resume", file, "--steps", "400000"}, logs.file("out"),
              logs.file("err"), {"OMP_NUM_THREADS=1"});
  ASSERT_TRUE(child.wait_until([&] {
    std::error_code missing;
    return !scratch().empty() &&
           fs::file_size(scratch() + "/whole/metrics.jsonl", missing) > 1000 && !missing;
  })) << slurp(logs.file("err"));
  child.signal(SIGTERM);
  EXPECT_EQ(child.wait(), 75) << slurp(logs.file("err"));
  EXPECT_EQ(scratch(), "");
  EXPECT_EQ(entries(run_.dir().path()), before);
}

TEST_F(Reproducibility, AStoppedTestOfDeterminismStopsItsProcessAndCleansUp) {
  Recipe endless = recipe("out");
  endless.train.max_steps = 1'000'000;
  const std::string file = written(endless, "r.yaml");
  const TempDir logs, temporary;
  Child child({LFT_BINARY_DIR "/lft", "debug", "determinism", file, "--steps", "400000"},
              logs.file("out"), logs.file("err"),
              {"OMP_NUM_THREADS=1", "TMPDIR=" + temporary.path()});
  ASSERT_TRUE(child.wait_until([&] { return entries(temporary.path()) > 0; }));
  std::this_thread::sleep_for(std::chrono::seconds(2));  // in its steps
  child.signal(SIGTERM);
  EXPECT_EQ(child.wait(), 75) << slurp(logs.file("err"));
  EXPECT_EQ(entries(temporary.path()), 0);
}

TEST_F(Reproducibility, DoctorNeedsNothingAndSpeaksJson) {
  const Ran text = run_lft("doctor");
  EXPECT_EQ(text.code, 0) << text.err << text.out;
  EXPECT_PIECE(text.out, "healthy     optimizer, loss scaler and device work together");
  const Ran json = run_lft("doctor --json");
  EXPECT_EQ(json.code, 0) << json.err;
  const Json facts = Json::parse(json.out);
  EXPECT_EQ(facts["problems"], Json::array());
  EXPECT_GE(facts["steps"].size(), 3u);
}

TEST_F(Reproducibility, TheEnvironmentListsWhatDeterminismIsInForce) {
  Recipe on = recipe("on"), off = recipe("off");
  off.train.deterministic = false;
  on.optim.warmup_ratio = off.optim.warmup_ratio = 0;
  on.train.max_steps = off.train.max_steps = 1;
  on.train.seed = 1234;
  ASSERT_EQ(run_lft("train " + written(on, "on.yaml")).code, 0);
  ASSERT_EQ(run_lft("train " + written(off, "off.yaml")).code, 0);
  const Json with = Json::parse(slurp(on.output_dir + "/environment.json"))["determinism"];
  EXPECT_EQ(with["deterministic_algorithms"], true);
  EXPECT_EQ(with["cudnn_deterministic"], true);
  EXPECT_EQ(with["cudnn_benchmark"], false);
  EXPECT_EQ(with["onednn_deterministic"], true);
  EXPECT_EQ(with["cublas_workspace"], ":4096:8");
  EXPECT_EQ(with["generator_seed"], 1234);
  const Json without = Json::parse(slurp(off.output_dir + "/environment.json"))["determinism"];
  EXPECT_EQ(without["deterministic_algorithms"], false);
  EXPECT_EQ(without["cublas_workspace"], "");
}

TEST_F(Reproducibility, ANondeterministicCublasSettingIsReplacedAndAGoodOneKept) {
  Recipe one = recipe("one");
  one.optim.warmup_ratio = 0;
  one.train.max_steps = 1;
  const auto environment = [&](const std::string& setting) {
    fs::remove_all(one.output_dir);
    setenv("CUBLAS_WORKSPACE_CONFIG", setting.c_str(), 1);
    const Ran ran = run_lft("train " + written(one, "one.yaml"));
    unsetenv("CUBLAS_WORKSPACE_CONFIG");
    EXPECT_EQ(ran.code, 0) << ran.err;
    EXPECT_EQ(ran.count("CUBLAS_WORKSPACE_CONFIG=:0:0 is not deterministic"),
              setting == ":0:0" ? 1 : 0);
    return Json::parse(
        slurp(one.output_dir + "/environment.json"))["determinism"]["cublas_workspace"];
  };
  EXPECT_EQ(environment(":0:0"), ":4096:8");
  EXPECT_EQ(environment(":16:8"), ":16:8");
}

}  // namespace
}  // namespace lft::test::reproducibility_test
