// The row and token that cause a non-finite step: through whole runs, whose
// incidents name it.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <limits>

#include "debug/stored_model.h"
#include "src/train/run/run.h"
#include "src/train/run/trainer.h"
#include "src/train/step/bad_rows.h"
#include "support/expect_error.h"
#include "support/poison.h"
#include "train/label_rows.h"
#include "train/pair_rows.h"
#include "train/run_files.h"
#include "train/spoil.h"

namespace lft::bad_rows_test {
using namespace lft::io;
using namespace lft::recipe;
using namespace lft::train;
namespace {

constexpr int64_t kByteToken = 3;  // token of byte 0 (tiny_run.h)
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

/// A run whose row `row` contains "What?" and then a letter that occurs in no other row.
void ask_letter(const test::TinyRun& run, size_t row, char letter) {
  Json rows = Json::parse(test::slurp(run.dir().file("rows.json")));
  rows[row]["conversations"][0]["value"] = std::string("<image>\nWhat") + letter + "?";
  run.dir().write("rows.json", rows.dump());
}

void spoil_letter(const test::TinyRun& run, char letter) {
  test::change_model(run, [&](test::StoredTensors& tensors) {
    const std::string name = "language_model.model.embed_tokens.weight";
    const auto width = static_cast<size_t>(tensors.at(name).shape[1]);
    test::stored_values(tensors, name)[static_cast<size_t>(kByteToken + letter) * width + 1] = kNaN;
  });
}

Recipe stopping(const test::TinyRun& run, const std::string& out) {
  Recipe recipe = run.recipe(out);
  recipe.data.eval.clear();
  recipe.model.check_weights = false;
  recipe.train.max_steps = 6;
  return recipe;
}

Json incident_of(const Recipe& recipe) {
  for (const auto& entry : std::filesystem::directory_iterator(recipe.output_dir + "/incidents"))
    return Json::parse(test::slurp(entry.path().string() + "/incident.json"));
  return {};
}

class Layouts : public ::testing::TestWithParam<bool> {};

TEST_P(Layouts, OneRowsTokenIsNamedInTheIncidentTheErrorAndTheMetrics) {
  const test::TinyRun run;
  ask_letter(run, 7, 'Z');
  spoil_letter(run, 'Z');
  Recipe recipe = stopping(run, "out");
  recipe.train.max_tokens_per_step = GetParam() ? 512 : 0;
  const RunInputs inputs = open_inputs(recipe);
  const data::Sample sample = inputs.data.train->get(7);
  const int64_t position =
      std::ranges::find(sample.input_ids, kByteToken + 'Z') - sample.input_ids.begin();
  ASSERT_LT(position, static_cast<int64_t>(sample.input_ids.size()));
  const std::string culprit = "row7, position " + std::to_string(position);
  // The trainability check meets the row too if the first batch contains it: it uses the first
  // steps' rows.
  EXPECT_LFT_ERROR(ErrorKind::kNumeric, culprit, train::train(recipe));
  const Json incident = incident_of(recipe);
  EXPECT_EQ(incident["culprit"], culprit);
  ASSERT_EQ(incident["bad_rows"].size(), 1u);
  const Json& row = incident["bad_rows"][0];
  EXPECT_EQ(row["id"], "row7");
  EXPECT_EQ(row["index"], 7);
  EXPECT_EQ(row["position"], position);
  EXPECT_EQ(row["token_id"], kByteToken + 'Z');
  EXPECT_EQ(row["token"], "<0x5A>");
  EXPECT_EQ(row["first_bad_module"], "language_model.model.embed_tokens");
  EXPECT_EQ(row["images"][0], run.dir().file("images/green7.bmp"));
  EXPECT_EQ(incident["rows_replayed"], incident["samples"].size());
  const Json event = test::events(recipe.output_dir, "stopped").at(0);
  EXPECT_EQ(event["culprit"], culprit);
  EXPECT_EQ(event["image"], run.dir().file("images/green7.bmp"));
}

INSTANTIATE_TEST_SUITE_P(PaddedAndPacked, Layouts, ::testing::Bool());

class Objectives : public ::testing::TestWithParam<const char*> {};

/// A run over 12 rows, one of which overflows FP16 by a token of its prompt.
Recipe preferring(const test::TinyRun& run, const std::string& objective) {
  ask_letter(run, 7, 'Z');
  test::change_model(run, [](test::StoredTensors& tensors) {
    test::poison_token(tensors, kByteToken + 'Z', 0, 6e4f);
  });
  Recipe recipe = stopping(run, objective);
  recipe.full.clear();
  recipe.lora.targets = {"llm:v_proj"};
  recipe.precision.compute = "fp16";
  recipe.objective.name = objective;
  const bool pairs = objective != "kto" && objective != "sft";
  if (pairs) recipe.data.train = test::write_pairs(run);
  if (objective == "kto") recipe.data.train = test::write_labels(run);
  return recipe;
}

TEST_P(Objectives, TheRowIsNamedAndTheRunContinuesInFp32) {
  const test::TinyRun run;
  Recipe recipe = preferring(run, GetParam());
  recipe.train.max_steps = 12;  // the row is in more than one epoch
  ASSERT_EQ(train::train(recipe), 0);
  const std::vector<Json> recovered = test::events(recipe.output_dir, "fp32_recovery");
  ASSERT_EQ(recovered.size(), 1u);
  EXPECT_EQ(recovered[0]["culprit"].get<std::string>().rfind("row7, position ", 0), 0u)
      << recovered[0]["culprit"];
  const Json incident = incident_of(recipe);
  const Json& row = incident["bad_rows"][0];
  EXPECT_EQ(incident["bad_rows"].size(), 1u);
  EXPECT_EQ(row["index"], 7);
  EXPECT_EQ(row["token_id"], kByteToken + 'Z');
  EXPECT_EQ(row["first_bad_module"], "language_model.model.layers.0.mlp.up_proj");
}

TEST_P(Objectives, TheRowIsNamedWhereTheRunStops) {
  const test::TinyRun run;
  Recipe recipe = preferring(run, GetParam());
  recipe.precision.recovery = "stop";
  EXPECT_LFT_ERROR(ErrorKind::kNumeric, "row7, position", train::train(recipe));
  EXPECT_EQ(test::events(recipe.output_dir, "stopped").at(0)["culprit"],
            incident_of(recipe)["culprit"]);
}

INSTANTIATE_TEST_SUITE_P(All, Objectives,
                         ::testing::Values("sft", "dpo", "ipo", "hinge", "apo_zero", "simpo",
                                           "orpo", "kto"),
                         [](const auto& each) { return std::string(each.param); });

TEST(BadRows, TheSideOfAPairIsNamed) {
  const test::TinyRun run;
  Recipe recipe = preferring(run, "simpo");
  ask_letter(run, 7, '.');
  Json pairs = Json::parse(test::slurp(test::write_pairs(run)));
  pairs[7]["rejected"]["value"] = "a Z";
  run.dir().write("pairs.json", pairs.dump());
  recipe.precision.recovery = "stop";
  EXPECT_LFT_ERROR(ErrorKind::kNumeric, "row7 (rejected), position", train::train(recipe));
}

/// No reference of it can be compared with.
TEST(BadRows, ARowWithoutAFiniteReferenceIsRefusedByName) {
  const test::TinyRun run;
  Recipe recipe = preferring(run, "dpo");
  test::change_model(run, [](test::StoredTensors& tensors) {
    test::poison_token(tensors, kByteToken + 'Z', 0, 3e38f);
  });
  recipe.precision.compute = "fp32";
  EXPECT_LFT_ERROR(ErrorKind::kNumeric, "row7, position", train::train(recipe));
}

TEST(BadRows, WeightsThatSpoilEveryRowAccuseNoSample) {
  const test::TinyRun run;
  test::change_model(run, [](test::StoredTensors& tensors) {
    test::stored_values(tensors, "language_model.model.layers.0.mlp.up_proj.weight")[0] = kNaN;
  });
  const Recipe recipe = stopping(run, "out");
  EXPECT_LFT_ERROR(ErrorKind::kNumeric, "no sample is at fault", train::train(recipe));
}

/// The first value of white images, doubled by a weight, is beyond FP16; that of grey ones is not.
TEST(BadRows, AnImageIsNamedWhereItsFeaturesOverflow) {
  const test::TinyRun run;
  for (int i = 0; i < 12; ++i) {
    const char* const names[] = {"red", "green", "blue"};
    const unsigned char shade = i == 4 ? 255 : 120;
    run.dir().write("images/" + std::string(names[i % 3]) + std::to_string(i) + ".bmp",
                    test::bmp(20, 20, shade, shade, shade));
  }
  test::change_model(run, [](test::StoredTensors& tensors) {
    const std::string name = "vision_tower.vision_model.embeddings.patch_embedding.weight";
    float* values = test::stored_values(tensors, name);
    const size_t count = tensors.at(name).bytes.size() / sizeof(float);
    std::fill_n(values, count, 0.0f);
    values[0] = 50000;  // CLIP's white is 1.93 and this grey -0.06 standard deviations
  });
  Recipe recipe = stopping(run, "out");
  recipe.precision.compute = "fp16";
  recipe.precision.recovery = "stop";
  EXPECT_LFT_ERROR(ErrorKind::kNumeric, "row4, image 0", train::train(recipe));
  const Json row = incident_of(recipe)["bad_rows"][0];
  EXPECT_EQ(row["image"], 0);
  EXPECT_EQ(row["first_bad_module"].get<std::string>().rfind("vision_tower", 0), 0u);
}

TEST(BadRows, AGradientThatOverflowsNamesTheTokenWhoseLossItIsOf) {
  const test::TinyRun run;
  const Recipe recipe = run.recipe("out");
  train::Run made = make_run(open_inputs(recipe));
  const data::StepSamples samples = start_loader(made, 0)->next();
  RowPasses passes{.context = {}, .parameters = {}};
  for (const lora::Trainable& each : made.model.trainables)
    passes.parameters.push_back({each.name, each.tensor});
  EXPECT_TRUE(find_bad_rows(made.model.model, samples, {0}, passes).rows.empty());
  passes.loss_scale = 3e38;  // every token's gradient overflows FP32
  const BadRows bad = find_bad_rows(made.model.model, samples, {0}, passes);
  ASSERT_EQ(bad.rows.size(), samples.micro[0].size());
  for (const BadRow& row : bad.rows) {
    const std::vector<int64_t>& labels = samples.micro[0][row.row].labels;
    const auto first = std::ranges::find_if(labels, [](int64_t label) { return label != -100; });
    EXPECT_EQ(row.position, first - labels.begin());
    EXPECT_EQ(row.module, "");
  }
}

TEST(BadRows, AValueFromOutsideTheBatchAccusesNoRow) {
  const test::TinyRun run;
  Recipe recipe = stopping(run, "out");
  EXPECT_LFT_ERROR(ErrorKind::kNumeric, "no row by itself",
                   train::train(recipe, {.gradients_ready = test::spoil({2}, kNaN)}));
  const Json incident = incident_of(recipe);
  EXPECT_TRUE(incident["bad_rows"].empty());
  EXPECT_EQ(incident["rows_replayed"], 0);
}

TEST(BadRows, TheTextCountsThem) {
  const BadRow one{.id = "a", .position = 3}, other{.id = "b"};
  EXPECT_EQ(bad_rows_text({.rows = {one}, .looked_at = 8}), "a, position 3");
  EXPECT_EQ(bad_rows_text({.rows = {other, one}, .looked_at = 8}),
            "b, the first of 2 of the 8 rows");
  EXPECT_NE(bad_rows_text({.rows = {one, other}, .looked_at = 2}).find("no sample is at fault"),
            std::string::npos);
  EXPECT_TRUE(names_a_row({.rows = {one}, .looked_at = 8}));
  EXPECT_FALSE(names_a_row({.rows = {one, other}, .looked_at = 2}));
  EXPECT_FALSE(names_a_row({.rows = {}, .looked_at = 8}));
}

}  // namespace
}  // namespace lft::bad_rows_test
