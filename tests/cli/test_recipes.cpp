// Every recipe bundled with lft, run in miniature with its own text: another model, other data,
// few steps, otherwise unchanged.
#include <gtest/gtest.h>

#include <filesystem>

#include "cli/run_lft.h"
#include "src/recipe/recipe.h"
#include "train/label_rows.h"
#include "train/pair_rows.h"

namespace lft::recipes_test {
using namespace lft::test;
namespace {

namespace fs = std::filesystem;
const std::string kRecipes = LFT_SOURCE_DIR "/recipes/";

std::vector<std::string> recipe_names() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(kRecipes))
    if (entry.path().extension() == ".yaml") names.push_back(entry.path().stem().string());
  std::sort(names.begin(), names.end());
  return names;
}

class Recipes : public ::testing::TestWithParam<std::string> {};

TEST_P(Recipes, TrainsInMiniature) {
  const TinyRun run;
  const recipe::Recipe recipe = recipe::read_recipe(kRecipes + GetParam() + ".yaml");
  const std::string rows = recipe.objective.name == ObjectiveName::kSft
                               ? run.dir().file("rows.json")
                           : recipe.objective.name == ObjectiveName::kKto ? write_labels(run)
                                                                          : write_pairs(run);
  std::string sets = " --set model.path=" + run.model() +
                     " --set output_dir=" + run.dir().file("out") + " --set data.train=" + rows +
                     " --set data.image_root=" + run.dir().file("images") +
                     " --set data.workers=1 --set train.max_steps=3 --set train.batch_size=4";
  if (!recipe.data.eval.empty()) sets += " --set data.eval=" + rows;
  if (recipe.data.eval_share > 0) sets += " --set data.eval_share=0.34";
  if (!recipe.lora.init_from.empty()) sets += " --set lora.init_from=''";
  if (recipe.train.eval_every_steps > 0) sets += " --set train.eval_every_steps=1";
  if (!recipe.lora.targets.empty()) sets += " --set lora.rank=4";
  const Ran ran = run_lft("train " + kRecipes + GetParam() + ".yaml" + sets);
  EXPECT_EQ(ran.code, 0) << ran.err;
  int products = 0;
  for (const char* product : {"adapter", "parts", "model"})
    products += fs::exists(run.dir().file("out/" + std::string(product)));
  EXPECT_EQ(products, 1);
}

/// The first comment of a recipe is its command; its second line, which lft recipe ls prints, is a
/// sentence.
TEST_P(Recipes, BeginsWithItsOwnCommandAndWhatItIsFor) {
  const std::string text = slurp(kRecipes + GetParam() + ".yaml");
  EXPECT_TRUE(text.starts_with("# lft train recipes/" + GetParam() + ".yaml\n# ") ||
              text.starts_with("# scripts/"))
      << text.substr(0, 80);
  const size_t end = text.find('\n', text.find('\n') + 1);
  EXPECT_EQ(text[end - 1], '.') << text.substr(0, end);
}

/// A template that is not the checkpoint's belongs to recipes whose subject it is: captions without
/// a question, and the quickstart's checkpoint, which has no template.
TEST_P(Recipes, LeaveToTheCheckpointWhatItKnows) {
  const Recipe recipe = recipe::read_recipe(kRecipes + GetParam() + ".yaml");
  const std::string own = GetParam() == "projector-pretrain"     ? "plain"
                          : GetParam().starts_with("quickstart") ? "llava-hf"
                                                                 : "auto";
  EXPECT_EQ(recipe.data.chat_template, own);
  EXPECT_EQ(recipe.data.image_fit, ImageFit::kAuto);
}

TEST(RecipeNames, ABundledRecipeIsTakenByName) {
  const TinyRun run;
  const std::string sets =
      " --set model.path=" + run.model() + " --set data.train=" + run.dir().file("rows.json") +
      " --set data.image_root=" + run.dir().file("images") +
      " --set output_dir=" + run.dir().file("out") + " --set lora.rank=4" +
      " --set train.max_steps=2 --set train.eval_every_steps=1" + " --set train.batch_size=2";
  const Ran ran = run_lft("train rows-200" + sets);
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_EQ(run_lft("validate rows-200" + sets).code, 0);
  const Ran unknown = run_lft("train rows-20" + sets);
  EXPECT_EQ(unknown.code, 2);
  EXPECT_EQ(unknown.count("did you mean rows-200?"), 1) << unknown.err;
}

/// A file of the working directory takes precedence.
TEST(RecipeNames, AFileOfTheUserIsTakenFirst) {
  const TempDir dir;
  dir.write("dora", "version: 1\noutput_dir: runs/mine\nmodel: {path: m}\ndata: {train: x}\n");
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(dir.path());
  const std::string mine = recipe::read_recipe("dora").output_dir;
  std::filesystem::current_path(before);
  EXPECT_EQ(mine, "runs/mine");
}

INSTANTIATE_TEST_SUITE_P(All, Recipes, ::testing::ValuesIn(recipe_names()), [](const auto& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

}  // namespace
}  // namespace lft::recipes_test
