// lft debug overfit, subset, bare, base and weights as run by a user: exit codes, messages,
// written files.
#include <gtest/gtest.h>

#include <filesystem>

#include "cli/run_lft.h"
#include "debug/learnable.h"

namespace lft::debug_discipline_test {
using namespace lft::recipe;
namespace {

namespace fs = std::filesystem;
using namespace test;

class DebugDiscipline : public ::testing::Test {
 protected:
  DebugDiscipline() : recipe_(run_.dir().write("recipe.yaml", dump_recipe(run_.recipe("out")))) {
    test::make_learnable(run_);
  }

  static void expect(const Ran& ran, int code, const std::vector<std::string>& pieces) {
    EXPECT_EQ(ran.code, code) << ran.out << ran.err;
    EXPECT_EQ(ran.count("error:"), code == 0 ? 0 : 1) << ran.err;
    for (const std::string& piece : pieces) {
      EXPECT_NE((ran.out + ran.err).find(piece), std::string::npos)
          << "no \"" << piece << "\" in:\n"
          << ran.out << ran.err;
    }
  }
  std::string out(const std::string& below = "") const { return run_.dir().file("out") + below; }

  TinyRun run_;
  std::string recipe_;
};

TEST_F(DebugDiscipline, Overfit) {
  expect(run_lft("debug overfit " + recipe_), 0,
         {"\nstep  200  loss", "\nhealthy    loss ",
          "curve      " + out("/debug-overfit/overfit.html")});
  const std::string page = run_.dir().file("page");
  expect(run_lft("debug overfit " + recipe_ + " --set optim.lr=1e-9 --steps 20 --out " + page), 5,
         {"suspect    learning rate too low", "cleared    frozen layer",
          "cleared    loss reduction", "found      learning rate too low",
          "error: one batch is not learned\n  where: " + page + "/overfit.html\n",
          "suspect: learning rate too low", "\n  next: try optim.lr="});
  EXPECT_TRUE(fs::exists(page + "/overfit.html"));
  expect(run_lft("debug overfit " + recipe_ + " --steps 0"), 2, {"--steps"});
  expect(run_lft("debug overfit " + recipe_ + " --set lora.rnk=1"), 2, {"lora.rnk"});
}

TEST_F(DebugDiscipline, SubsetAndWeights) {
  expect(run_lft("debug subset " + recipe_ + " -n 6"), 0,
         {"train loss ", "6 rows, 6 steps", "held-out   "});
  expect(run_lft("debug subset " + recipe_ + " -n 6"), 2, {"output_dir contains a run"});
  const std::string run = out("/debug-subset-6"), zero = run + "/checkpoints/step-0 ";
  expect(run_lft("debug weights --expect-change " + zero + run), 0,
         {"16 of 16 modules changed", "q_proj"});
  expect(run_lft("debug weights --expect-change " + run + " " + run), 5,
         {"nothing changed", "error: no weight changed\n  where: adapter " + run + "/adapter and ",
          "\n  next: where one was trained"});
  expect(run_lft("debug weights " + run + " " + run), 0, {"nothing changed"});
  expect(run_lft("debug weights " + run + " " + run_.dir().file("nowhere")), 3,
         {"no weights to compare"});
  expect(run_lft("debug weights --help"), 0, {"checkpoints/step-0"});
}

TEST_F(DebugDiscipline, Base) {
  expect(run_lft("debug base " + run_.model()), 0, {"the model looks untrained: ", "not judged: "});
  const std::string down = "language_model.model.layers.1.mlp.down_proj.weight";
  const auto scale = [&](test::StoredTensors& tensors) {
    tensors[down] = test::random_tensor(tensors[down].shape, test::DType::kF32, 1, 0, 1500);
  };
  const std::string odd = test::write_tiny_llava(
      run_.dir().file("odd"), {.image_token = 260, .vocab = 264, .max_positions = 512}, scale);
  expect(run_lft("debug base " + odd), 0, {down + ": values of another scale: ", "1 suspicions"});
  for (const auto& file : fs::directory_iterator(run_.model())) {
    if (!fs::exists(odd + "/" + file.path().filename().string())) fs::copy(file.path(), odd);
  }
  expect(run_lft("check " + recipe_ + " --set model.path=" + odd), 0,
         {"warning: the base looks odd: " + down, "lft debug base " + odd + " says more"});
  EXPECT_EQ(run_lft("check " + recipe_).count("warning: the base"), 0);
  expect(run_lft("debug base " + run_.dir().file("nowhere")), 3,
         {"the model directory does not exist"});
}

TEST_F(DebugDiscipline, Bare) {
  expect(run_lft("debug bare " + recipe_ + " --steps 12"), 0,
         {"core ", "\nhealthy    nothing fails"});
  EXPECT_FALSE(fs::exists(out()));
  expect(run_lft("debug bare " + recipe_ + " --steps 12 --set optim.clip_grad_norm=1e-14"), 5,
         {"FAILS", "\nfound      clipping",
          "error: a part of the run causes a failure: clipping\n  where: optim.clip_grad_norm ",
          "\n  next: give these settings"});
}

}  // namespace
}  // namespace lft::debug_discipline_test
