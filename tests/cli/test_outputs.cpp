// No command's output replaces one of its inputs.
#include <gtest/gtest.h>

#include <filesystem>

#include "cli/run_lft.h"

namespace lft::outputs_test {
using namespace lft::recipe;
namespace {

using test::Ran;
using test::run_lft;
using test::slurp;
using test::TinyRun;

class Outputs : public ::testing::Test {
 protected:
  Outputs() {
    Recipe recipe = run_.recipe("out");
    recipe.data.eval = recipe.data.train.path;
    rows_ = recipe.data.train.path;
    images_ = recipe.data.image_root;
    model_ = recipe.model.path;
    recipe_ = run_.dir().write("recipe.yaml", dump_recipe(recipe));
    for (const auto& entry : std::filesystem::directory_iterator(images_)) {
      if (entry.path().extension() == ".bmp") image_ = entry.path().string();
    }
  }
  void expect_refused(const std::string& command, const std::string& input) {
    const std::string before = slurp(input);
    ASSERT_FALSE(before.empty()) << input;
    const Ran ran = run_lft(command + " --out " + input);
    EXPECT_EQ(ran.code, 2) << command << "\n" << ran.err;
    EXPECT_EQ(ran.count("error:"), 1) << ran.err;
    EXPECT_NE(ran.err.find("the output would harm an input"), std::string::npos) << ran.err;
    EXPECT_TRUE(slurp(input) == before) << command;
  }

  TinyRun run_;
  std::string recipe_, rows_, images_, model_, image_;
};

TEST_F(Outputs, TheRecipeAndItsDataStay) {
  const std::string of_base = " --model " + model_;
  for (const std::string& command :
       {"eval " + recipe_ + of_base, "debug memory " + recipe_, "verify-resume " + recipe_}) {
    for (const std::string& input : {recipe_, rows_, model_ + "/config.json", image_})
      expect_refused(command, input);
  }
}

TEST_F(Outputs, WhatOptionsNameStays) {
  for (const char* command : {"eval", "score"}) {
    const std::string asked = std::string(command) + " --model " + model_ + " --data " + rows_ +
                              " --image-root " + images_;
    for (const std::string& input : {rows_, model_ + "/config.json", image_})
      expect_refused(asked, input);
  }
}

TEST_F(Outputs, ResultsMayLieBesideTheImages) {
  const std::string out = images_ + "/scores.jsonl";
  const std::string asked =
      "score --model " + model_ + " --data " + rows_ + " --image-root " + images_ + " --out " + out;
  for (int time = 0; time < 2; ++time) EXPECT_EQ(run_lft(asked).code, 0);
  EXPECT_FALSE(slurp(out).empty());
}

}  // namespace
}  // namespace lft::outputs_test
