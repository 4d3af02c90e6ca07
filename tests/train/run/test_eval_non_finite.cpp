// A non-finite evaluation during training: an event with row and module, never the best,
// not counted by train.patience, and a folder that lft replay can run.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "debug/stored_model.h"
#include "src/train/run/trainer.h"
#include "support/poison.h"
#include "train/run_files.h"

namespace lft::eval_non_finite_test {
using namespace lft::recipe;
using namespace lft::test;
namespace {

namespace fs = std::filesystem;

class EvalNonFinite : public ::testing::TestWithParam<const char*> {};

TEST_P(EvalNonFinite, IsAnEventAndNeitherTheBestNorCounted) {
  const TinyRun run;
  change_model(run, [](StoredTensors& tensors) { poison_token(tensors, 3 + 'z', 0, 6e4f); });
  nlohmann::json rows = nlohmann::json::parse(slurp(run.dir().file("rows.json")));
  rows[4]["conversations"][0]["value"] = "<image>\nA z?";
  Recipe recipe = run.recipe("out");
  recipe.data.eval = run.dir().write("eval.json", rows.dump());
  recipe.precision.compute = "fp16";
  recipe.model.base_dtype = "fp32";
  recipe.full.clear();
  recipe.lora.targets = {"llm:v_proj"};
  recipe.train.eval_every_steps = 2;
  recipe.train.keep_best = GetParam();
  recipe.train.patience = 1;
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(train::train(recipe), 0);
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(step_lines(recipe.output_dir).size(), 6u) << "patience waits for nothing here";
  EXPECT_TRUE(events(recipe.output_dir, "best").empty());
  EXPECT_TRUE(events(recipe.output_dir, "early_stop").empty());
  const std::vector<Json> evals = events(recipe.output_dir, "eval"),
                          bad = events(recipe.output_dir, "eval_not_finite");
  ASSERT_EQ(evals.size(), 3u);
  ASSERT_EQ(bad.size(), 3u);
  const std::string module = kLayers + "0.mlp.up_proj",
                    folder = recipe.output_dir + "/incidents/eval-step-2";
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_TRUE(evals[i]["eval_loss"].is_null());
    EXPECT_EQ(bad[i]["step"], evals[i]["step"]);
    EXPECT_TRUE(bad[i]["where"].get<std::string>().starts_with("row4, position ")) << bad[i];
    for (const std::string& piece : {std::string("row4, position "), module, std::string("fp16")})
      EXPECT_NE(bad[i]["what"].get<std::string>().find(piece), std::string::npos) << bad[i];
    EXPECT_NE(bad[i]["next"].get<std::string>().find("lft replay " + folder), std::string::npos);
  }
  EXPECT_NE(said.find("no evaluation was finite"), std::string::npos) << said;
  EXPECT_EQ(said.find("step -1"), std::string::npos) << said;
  EXPECT_TRUE(fs::exists(folder + "/incident.json"));
  EXPECT_FALSE(fs::exists(recipe.output_dir + "/incidents/eval-step-4")) << "the first is enough";
  const Json incident = Json::parse(slurp(folder + "/incident.json"));
  EXPECT_EQ(incident["samples"].size(), 1u);
  EXPECT_EQ(incident["samples"][0]["first_bad_module"], module);
  EXPECT_EQ(incident["samples"][0]["token"], "<0x7A>");
  const std::string page = slurp(recipe.output_dir + "/report.html");
  EXPECT_NE(page.find("row4, position "), std::string::npos);
  EXPECT_NE(page.find(module), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(KeepBest, EvalNonFinite, ::testing::Values("eval_loss", "exact"));

}  // namespace
}  // namespace lft::eval_non_finite_test
