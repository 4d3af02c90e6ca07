// A recipe bundled with lft, and the files it names, are found from any folder.
#include <gtest/gtest.h>

#include <cstdlib>

#include "src/recipe/recipe.h"
#include "src/recipe/shipped.h"
#include "support/expect_error.h"
#include "support/temp_dir.h"

namespace lft::shipped_test {
using namespace lft::recipe;
namespace {

class Shipped : public ::testing::Test {
 protected:
  Shipped() { setenv("LFT_RECIPES", temp_.file("share").c_str(), 1); }
  ~Shipped() override { unsetenv("LFT_RECIPES"); }
  test::TempDir temp_;
};

TEST_F(Shipped, WhatIsNotInTheWorkingFolderIsTakenFromBesideTheProgram) {
  temp_.write("share/a-shipped-name/rows.json", "[]");
  const std::string there = temp_.file("share/a-shipped-name/rows.json");
  EXPECT_EQ(resolve_bundled_path("recipes/a-shipped-name/rows.json"), there);
  for (const char* as_it_is :
       {"a-shipped-name/rows.json", "recipes/another-name", "other/recipes/a-shipped-name", ""})
    EXPECT_EQ(resolve_bundled_path(as_it_is), as_it_is);
}

TEST_F(Shipped, ARecipeAndAllThatItNames) {
  temp_.write("share/a-shipped-name.yaml",
              "version: 1\noutput_dir: runs/x\nmodel: {path: recipes/a-shipped-name/model}\n"
              "data:\n  train: [{path: recipes/a-shipped-name/rows.json, image_root: images}]\n"
              "  eval: recipes/a-shipped-name/held_out.json\n"
              "  image_root: recipes/a-shipped-name/images\n"
              "train: {max_steps: 1}\n");
  for (const char* name : {"model/config.json", "rows.json", "held_out.json", "images/a.png"})
    temp_.write(std::string("share/a-shipped-name/") + name, "");
  const Recipe recipe = read_recipe("recipes/a-shipped-name.yaml");
  const std::string folder = temp_.file("share/a-shipped-name");
  EXPECT_EQ(recipe.model.path, folder + "/model");
  EXPECT_EQ(recipe.data.train.list.front().path, folder + "/rows.json");
  EXPECT_EQ(recipe.data.train.list.front().image_root, "images");
  EXPECT_EQ(recipe.data.eval, folder + "/held_out.json");
  EXPECT_EQ(recipe.data.image_root, folder + "/images");
  EXPECT_EQ(recipe.output_dir, "runs/x");
  EXPECT_LFT_ERROR(ErrorKind::kUsage, "recipes/no-such-name.yaml",
                   read_recipe("recipes/no-such-name.yaml"));
}

}  // namespace
}  // namespace lft::shipped_test
