// lft validate stops where training stops, and goes through where on_bad_sample: skip takes a run through.
#include <gtest/gtest.h>

#include "cli/run_lft.h"

namespace lft {
namespace {

using test::Ran;
using test::run_lft;

class ValidateCli : public ::testing::Test {
 protected:
  ValidateCli() : recipe_(run_.dir().write("recipe.yaml", dump_recipe(run_.recipe("out")))) {
    nlohmann::json data = nlohmann::json::parse(test::slurp(run_.dir().file("rows.json")));
    data[4]["image"] = "missing.bmp";
    data[6]["conversations"][0]["value"] = "no mark";
    run_.dir().write("rows.json", data.dump());
  }
  Ran validate(const std::string& sets) { return run_lft("validate " + recipe_ + " --set data.eval=null " + sets); }

  test::TinyRun run_;
  std::string recipe_;
};

TEST_F(ValidateCli, StopsWhereTrainingStops) {
  const Ran ran = validate("");
  EXPECT_EQ(ran.code, 3) << ran.err;
  EXPECT_EQ(ran.count("on_bad_sample: skip leaves out those that cannot be read"), 1) << ran.err;
}

TEST_F(ValidateCli, WhatIsSkippedIsListedAndNoError) {
  const Ran ran = validate("--set data.on_bad_sample=skip --set data.max_bad=2");
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_EQ(ran.count("data.train: 2 of 12 rows are left out by on_bad_sample: skip"), 1) << ran.err;
  for (const char* place : {"rows.json[4]", "rows.json[6]"}) EXPECT_NE(ran.out.find(place), std::string::npos) << ran.out;
  EXPECT_EQ(run_lft("train " + recipe_ + " --set data.on_bad_sample=skip --set data.max_bad=2").code, 0);
}

TEST_F(ValidateCli, MoreThanMaxBadIsAnError) {
  const Ran ran = validate("--set data.on_bad_sample=skip --set data.max_bad=1");
  EXPECT_EQ(ran.code, 3) << ran.err;
  EXPECT_EQ(ran.count("raise data.max_bad: 1; data.train has 2 rows that cannot be read"), 1) << ran.err;
}

TEST_F(ValidateCli, ARowThatTeachesNothingIsNotSkipped) {
  nlohmann::json data = nlohmann::json::parse(test::slurp(run_.dir().file("rows.json")));
  data[9]["conversations"][0]["value"] = "<image>\n" + std::string(600, 'q');
  run_.dir().write("rows.json", data.dump());
  const Ran ran = validate("--set data.on_bad_sample=skip");
  EXPECT_EQ(ran.code, 3) << ran.err;
  EXPECT_EQ(ran.count("leaves out only those that cannot be read"), 1) << ran.err;
}

}  // namespace
}  // namespace lft
