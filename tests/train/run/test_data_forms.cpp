// One set of rows in each form that data.train accepts gives one adapter, bit for bit, also when
// resumed in the middle of an epoch; and mixtures use exactly the numbers set by their weights.
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "src/train/inputs/run_inputs.h"
#include "src/train/run/trainer.h"
#include "support/expect_error.h"
#include "support/tar_file.h"
#include "train/copy_killed.h"
#include "train/run_files.h"
#include "train/tiny_run.h"

namespace lft::data_forms_test {
using namespace lft::checkpoint;
using namespace lft::data;
using namespace lft::io;
using namespace lft::recipe;
using namespace lft::train;
namespace {

using test::slurp;

/// Epochs of 3 steps, the last of 2 rows; killed after step 4, in the second.
Recipe short_recipe(const test::TinyRun& run, const std::string& out) {
  Recipe recipe = run.recipe(out);
  recipe.data.eval.clear();
  recipe.lora.dropout = 0.25;
  recipe.log.tensorboard = false;
  recipe.checkpoint = {.every_steps = 1, .keep = 100, .at_step_zero = false};
  return recipe;
}

/// Trains, and resumes from step 4 in another folder; returns both adapters.
std::pair<std::string, std::string> adapters_of(const test::TinyRun& run, Recipe recipe) {
  EXPECT_EQ(train::train(recipe), 0);
  const std::string whole = slurp(recipe.output_dir + "/adapter/adapter_model.safetensors");
  const std::string killed = recipe.output_dir + "-killed";
  test::copy_killed(recipe.output_dir, killed, /*step=*/4);
  recipe.output_dir = killed;
  EXPECT_EQ(train::train(recipe, {.resume = true}), 0);
  return {whole, slurp(killed + "/adapter/adapter_model.safetensors")};
}

std::string base64(const std::string& bytes) {
  static constexpr char kDigits[] =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t bits = 0;
    for (size_t k = 0; k < 3; ++k)
      bits = bits << 8 | (i + k < bytes.size() ? static_cast<unsigned char>(bytes[i + k]) : 0);
    for (size_t k = 0; k < 4; ++k)
      text += i + k > bytes.size() ? '=' : kDigits[bits >> (18 - 6 * k) & 63];
  }
  return text;
}

TEST(DataForms, EachGivesTheAdapterOfJson) {
  const test::TinyRun run(/*rows=*/10);
  const Json rows = Json::parse(slurp(run.dir().file("rows.json")));
  const auto [want, resumed] = adapters_of(run, short_recipe(run, "json"));
  EXPECT_TRUE(resumed == want);

  std::string lines;
  std::vector<std::pair<std::string, std::string>> members, first, second;
  for (size_t i = 0; i < rows.size(); ++i) {
    Json inside = rows[i], beside = rows[i];
    const std::string bytes =
        slurp(run.dir().file("images/" + rows[i]["image"].get<std::string>()));
    inside["image"] = "data:image/bmp;base64," + base64(bytes);
    lines += inside.dump() + "\n";
    beside["image"] = "bmp";
    std::vector<std::pair<std::string, std::string>>& shard = i < 4 ? first : second;
    for (auto* to : {&members, &shard}) {
      to->emplace_back(std::to_string(i) + ".bmp", bytes);
      to->emplace_back(std::to_string(i) + ".json", beside.dump());
    }
  }
  run.dir().write("uris.jsonl", lines);
  run.dir().write("rows.tar", test::tar_file(members));
  run.dir().write("shards/0.tar", test::tar_file(first));
  run.dir().write("shards/1.tar", test::tar_file(second));
  for (const std::string form : {"uris.jsonl", "rows.tar", "shards"}) {
    Recipe recipe = short_recipe(run, form + "-out");
    recipe.data.train = run.dir().file(form);
    recipe.data.image_root.clear();
    recipe.data.workers = 3;
    const auto [whole, again] = adapters_of(run, recipe);
    EXPECT_TRUE(whole == want) << form;
    EXPECT_TRUE(again == want) << form;
  }
}

class Mixture : public ::testing::Test {
 protected:
  Mixture() {
    const Json rows = Json::parse(slurp(run_.dir().file("rows.json")));
    Json two = Json::array(), six = Json::array();
    for (size_t i = 0; i < 8; ++i) (i < 2 ? two : six).push_back(rows[i]);
    for (Json& row : six) row["image"] = "images/" + row["image"].get<std::string>();
    run_.dir().write("two.json", two.dump());
    run_.dir().write("six.json", six.dump());
  }
  /// Image names of the second source are relative to one folder above those of the first.
  Recipe recipe(const std::string& out, double two, double six) const {
    Recipe recipe = short_recipe(run_, out);
    recipe.train.batch_size = 3;
    recipe.data.image_root = run_.dir().file("images");
    recipe.data.train.path.clear();
    recipe.data.train.list = {
        {.path = run_.dir().file("two.json"), .image_root = {}, .weight = two},
        {.path = run_.dir().file("six.json"), .image_root = run_.dir().path(), .weight = six}};
    return recipe;
  }
  test::TinyRun run_{/*rows=*/10};
};

/// 2.5 x 2 + 0.5 x 6 = 8 rows in steps of 3, 3 and 2.
TEST_F(Mixture, EpochsTakeWhatTheWeightsSay) {
  Recipe mixed = recipe("mixed", 2.5, 0.5);
  mixed.train.max_steps = 0;
  mixed.train.epochs = 2;
  const RunInputs inputs = open_inputs(mixed);
  EXPECT_EQ(inputs.rows, 8);
  EXPECT_EQ(inputs.steps_per_epoch, 3);
  EXPECT_EQ(inputs.total_steps, 6);
  const auto loader = start_loader(inputs, 0);
  std::map<std::string, int64_t> seen;
  for (int64_t step = 0; step < 6; ++step) {
    for (const auto& micro : loader->next().micro) {
      for (const Sample& sample : micro) ++seen[sample.id];
    }
    if (step % 3 != 2) continue;
    EXPECT_EQ(seen["row0"] + seen["row1"], 5 * (step / 3 + 1));
    int64_t of_six = 0;
    for (int i = 2; i < 8; ++i) of_six += seen["row" + std::to_string(i)];
    EXPECT_EQ(of_six, 3 * (step / 3 + 1));
  }
  for (int i = 2; i < 8; ++i) EXPECT_EQ(seen["row" + std::to_string(i)], 1);  // two halves of six

  const auto [whole, resumed] = adapters_of(run_, mixed);
  EXPECT_TRUE(whole == resumed);
  EXPECT_EQ(test::loss_log(mixed.output_dir), test::loss_log(mixed.output_dir + "-killed"));
}

/// The loss is the mean over all supervised tokens, and each source's loss the mean over its own.
TEST_F(Mixture, LossesOfSourcesMakeTheLoss) {
  const Recipe mixed = recipe("mixed", 2.5, 0.5);
  ASSERT_EQ(train::train(mixed), 0);
  int64_t both = 0;
  for (const Json& line : test::step_lines(mixed.output_dir)) {
    double sum = 0;
    int64_t tokens = 0;
    for (const auto& [source, loss] : line.at("losses").items()) {
      const int64_t of_source = line.at("loss_tokens").at(source);
      sum += loss.get<double>() * static_cast<double>(of_source);
      tokens += of_source;
    }
    both += line.at("losses").size() == 2;
    EXPECT_EQ(tokens, line.at("supervised_tokens").get<int64_t>());
    EXPECT_NEAR(sum / static_cast<double>(tokens), line.at("loss").get<double>(),
                1e-5);  // float32 sums over about 20 tokens
  }
  EXPECT_GE(both, 1);
  EXPECT_NE(slurp(mixed.output_dir + "/report.html").find("loss of " + run_.dir().file("six.json")),
            std::string::npos);
}

TEST_F(Mixture, SourcesOfWeightOneAreTheirRowsInOneFile) {
  Recipe one = short_recipe(run_, "one");
  one.train.batch_size = 3;
  Json rows = Json::parse(slurp(run_.dir().file("rows.json")));
  rows.erase(rows.begin() + 8, rows.end());
  one.data.train = run_.dir().write("eight.json", rows.dump());
  const auto [want, again] = adapters_of(run_, one);
  const auto [mixed, resumed] = adapters_of(run_, recipe("mixed", 1, 1));
  EXPECT_TRUE(mixed == want);
  EXPECT_TRUE(resumed == want);
  Recipe listed = one;
  listed.output_dir = run_.dir().file("listed");
  listed.data.train.list = {{.path = one.data.train.path, .image_root = {}}};
  listed.data.train.path.clear();
  EXPECT_TRUE(adapters_of(run_, listed).first == want);
}

TEST_F(Mixture, AnotherWeightIsAnotherRun) {
  Recipe mixed = recipe("mixed", 2.5, 0.5);
  ASSERT_EQ(train::train(mixed), 0);
  test::copy_killed(mixed.output_dir, run_.dir().file("killed"), 2);
  mixed.output_dir = run_.dir().file("killed");
  mixed.data.train.list[0].weight = 1.5;
  EXPECT_LFT_ERROR(ErrorKind::kCheckpoint, "rows of each source",
                   train::train(mixed, {.resume = true}));
}

/// Held-out rows come from both, and the remaining rows are weighted.
TEST_F(Mixture, HeldOutRowsAreTakenFirst) {
  Recipe mixed = recipe("mixed", 2, 1);
  mixed.data.eval_share = 0.25;
  const RunInputs inputs = open_inputs(mixed);
  EXPECT_EQ(inputs.data.eval->size(), 2);
  int64_t rows = 0, taken = 0;
  for (const SourceShare& share : inputs.sources) {
    rows += share.rows;
    taken += share.taken;
  }
  EXPECT_EQ(rows, 6);
  EXPECT_EQ(taken, inputs.rows);
  EXPECT_EQ(inputs.rows, 6 + inputs.sources[0].rows);
}

}  // namespace
}  // namespace lft::data_forms_test
