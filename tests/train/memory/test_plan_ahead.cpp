// A run's memory on GPUs, from config.json or a published checkpoint's name alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <sstream>
#include <tuple>

#include "models/registry/registry.h"
#include "src/hf/known_models.h"
#include "src/hf/model_dir.h"
#include "src/recipe/shipped.h"
#include "src/train/memory/model_table.h"
#include "src/train/memory/plan_ahead.h"
#include "support/expect_error.h"
#include "support/llava.h"
#include "train/tiny_run.h"

namespace lft::plan_ahead_test {
using namespace lft::recipe;
using namespace lft::train;
namespace {

Recipe shipped() { return read_recipe(LFT_SOURCE_DIR "/recipes/llava-lora.yaml"); }

double peak_of(const PlanAhead& plan, const std::string& changes) {
  for (const PlannedSetting& setting : plan.settings)
    if (setting.changes == changes) return setting.peak;
  ADD_FAILURE() << "no setting " << changes;
  return 0;
}

/// The decoders as published (Llama 2 of 6,738,415,616 and 13,015,864,320 parameters, Llama 3 of
/// 8,030,261,248, Yi of 34,388,917,248) with 64 more tokens in both tables, CLIP ViT-L/14 at 336 px
/// (303,507,456) and the projector.
TEST(PlanAhead, KnownModelsHaveTheParametersOfThePublishedOnes) {
  const auto count = [](const std::string& name) {
    int64_t sum = 0;
    for (const family::TensorSpec& spec : test::tensors_of(hf::ModelDir::shapes_of(name).config))
      sum += c10::multiply_integers(spec.shape);
    return sum;
  };
  const auto llava = [](int64_t llama, int64_t hidden) {
    const int64_t projector = 1024 * hidden + hidden * hidden + 2 * hidden;
    return llama + 2 * 64 * hidden + 303'507'456 + projector;
  };
  EXPECT_EQ(count("llava-hf/llava-1.5-7b-hf"), llava(6'738'415'616, 4096));
  EXPECT_EQ(count("checkpoints/llava-1.5-13b-hf/"), llava(13'015'864'320, 5120));
  const std::vector<std::tuple<std::string, int64_t, int64_t>> next = {
      {"llava-v1.6-vicuna-7b-hf", 6'738'415'616, 4096},
      {"llava-v1.6-vicuna-13b-hf", 13'015'864'320, 5120},
      {"llama3-llava-next-8b-hf", 8'030'261'248, 4096},
      {"llava-v1.6-34b-hf", 34'388'917'248, 7168}};
  for (const auto& [name, llama, hidden] : next)  // and the vector between rows of patches
    EXPECT_EQ(count(name), llava(llama, hidden) + hidden) << name;
  // The numbers of parameters that the hub states for these checkpoints, or that transformers
  // counts from the same sizes (Qwen2-VL, Qwen3.5, InternVL, LLaVA-OneVision, SmolVLM2, Idefics3,
  // and models with experts); an InternVL's LM head is added.
  const std::map<std::string, int64_t> published = {
      {"llava-v1.6-mistral-7b-hf", 7'566'747'648},
      {"Qwen2.5-VL-3B-Instruct", 3'754'622'976},
      {"Qwen2-VL-2B-Instruct", 2'208'985'600},
      {"Qwen2-VL-7B-Instruct", 8'291'375'616},
      {"Qwen2-VL-72B-Instruct", 73'405'560'320},
      {"Qwen2.5-VL-7B-Instruct", 8'292'166'656},
      {"Qwen2.5-VL-32B-Instruct", 33'452'718'336},
      {"Qwen2.5-VL-72B-Instruct", 73'410'777'344},
      {"Qwen3-VL-2B-Instruct", 2'127'532'032},
      {"Qwen3-VL-4B-Instruct", 4'437'815'808},
      {"Qwen3-VL-8B-Instruct", 8'767'123'696},
      {"Qwen3-VL-32B-Thinking", 33'357'390'064},
      {"Qwen3-VL-30B-A3B-Instruct", 31'070'754'032},
      {"Qwen3-VL-235B-A22B-Thinking", 235'670'022'896},
      {"Qwen3.5-35B-A3B", 35'107'181'936},
      {"Qwen3.6-35B-A3B", 35'107'181'936},
      {"Qwen3.5-397B-A17B", 396'802'360'816},
      {"Qwen3.5-0.8B", 852'985'920},
      {"Qwen3.5-2B", 2'213'241'664},
      {"Qwen3.5-4B", 4'539'265'536},
      {"Qwen3.5-9B", 9'409'813'744},
      {"Qwen3.5-27B", 27'356'728'560},
      {"InternVL3-1B-hf", 938'193'024},
      {"InternVL3-2B-hf", 2'088'957'440},
      {"InternVL3-8B-hf", 7'944'373'760},
      {"InternVL3-1B", 938'193'024},
      {"InternVL3-8B", 7'944'373'760},
      {"InternVL3_5-1B-HF", 1'060'897'792},
      {"InternVL3_5-8B-HF", 8'528'318'464},
      {"InternVL3_5-2B", 2'348'347'392},
      {"InternVL3_5-4B", 4'732'489'216},
      {"InternVL3-14B-hf", 15'117'256'704},
      {"InternVL3-38B", 38'388'164'992},
      {"InternVL3-38B-hf", 38'388'164'992},
      {"InternVL3-78B", 78'408'318'336},
      {"InternVL3_5-14B", 15'119'523'840},
      {"InternVL3_5-38B-HF", 38'390'405'504},
      {"llava-onevision-qwen2-0.5b-ov-hf", 893'675'552},
      {"llava-onevision-qwen2-7b-si-hf", 8'030'807'584},
      {"llava-onevision-qwen2-72b-ov-hf", 73'181'570'592},
      {"SmolVLM-256M-Instruct", 256'484'928},
      {"SmolVLM-500M-Instruct", 507'482'304},
      {"SmolVLM-Instruct", 2'246'272'880},
      {"SmolVLM2-256M-Video-Instruct", 256'484'928},
      {"SmolVLM2-500M-Video-Instruct", 507'482'304},
      {"SmolVLM2-2.2B-Instruct", 2'246'784'880},
      {"Idefics3-8B-Llama3", 8'462'086'384},
      {"gemma-3-4b-it", 4'300'079'472},
      {"gemma-3-12b-it", 12'187'325'040},
      {"gemma-3-27b-it", 27'432'406'640}};
  for (const auto& [name, parameters] : published)
    EXPECT_EQ(count("checkpoints/" + name), parameters) << name;
  EXPECT_LFT_ERROR(ErrorKind::kInput, "llava-hf/llava-1.5-7b-hf", hf::ModelDir::shapes_of("none"));
}

TEST(PlanAhead, TheShippedRecipeIsPlannedBeforeAnythingIsThere) {
  const PlanAhead plan = plan_ahead(shipped(), 0);
  const double asked = plan.settings.front().peak;
  EXPECT_EQ(plan.settings.front().changes, "");
  // BF16 weights, and for the trainables (rank 128 on 224 layers and the projector) masters,
  // gradients and two moments in float32, and the masters' copies in BF16.
  const double projector = 1024. * 4096 + 4096. * 4096 + 2 * 4096,
               lora = 32 * 128. * (4 * (4096 + 4096) + 3 * (4096 + 11008));
  EXPECT_GT(asked, 2 * (7'063'427'072. - projector) + 16 * (projector + lora) + 2 * lora);
  for (const PlannedSetting& setting : plan.settings)
    EXPECT_LE(setting.peak, asked) << setting.changes;
  EXPECT_LT(peak_of(plan, "train.batch_size=1"), peak_of(plan, "train.batch_size=4"));
  EXPECT_LT(peak_of(plan,
                    "model.base_dtype=nf4 train.activation_checkpointing=block "
                    "train.batch_size=1"),
            22e9)
      << "the least of them is for a card of 24 GB";
  // 4 of 16 bits of the decoder's linear layers remain, plus 1/64 + of their scales.
  const double linear = 32 * (4 * 4096. * 4096 + 3 * 4096. * 11008);
  EXPECT_NEAR(peak_of(plan, "") - peak_of(plan, "model.base_dtype=nf4"), 1.484 * linear,
              0.02 * linear);
  EXPECT_LT(plan_ahead(shipped(), 800).settings.front().peak, asked);
}

/// The GPU that each recipe names, with rows of the maximum length.
TEST(PlanAhead, TheRecipesFitTheirCards) {
  const std::vector<std::pair<std::string, double>> cards = {
      {"llava-lora-24gb", 23},    {"llava-lora-40gb", 38},
      {"llava-lora-80gb", 78},    {"llava-13b-lora", 78},
      {"llava-full-llm", 138},    {"rows-200", 38},
      {"rows-200k", 78},          {"documents", 38},
      {"multi-image", 38},        {"dora", 78},
      {"projector-pretrain", 78}, {"qwen3-vl-30b-a3b-qlora", 23}};
  for (const auto& [name, gibibytes] : cards) {
    const Recipe recipe = read_recipe(LFT_SOURCE_DIR "/recipes/" + name + ".yaml");
    const PlanAhead plan = plan_ahead(recipe, 0);
    EXPECT_LT(plan.settings.front().peak, gibibytes * (1 << 30)) << name;
  }
}

/// `settings` of a plan, of which every one saves memory over those that change fewer fields.
TEST(PlanAhead, ASettingThatSavesNothingIsNotListed) {
  const Recipe recipe = read_recipe(LFT_SOURCE_DIR "/recipes/llava-lora-24gb.yaml");
  for (const int64_t tokens : {800, 2048}) {
    const PlanAhead plan = plan_ahead(recipe, tokens);
    for (size_t i = 1; i < plan.settings.size(); ++i)
      EXPECT_LT(plan.settings[i].peak, plan.settings[0].peak) << plan.settings[i].changes;
  }
}

/// The smaller size of images of SmolVLM.
TEST(PlanAhead, TheRecipesImageSizeIsPlanned) {
  Recipe recipe = read_recipe(LFT_SOURCE_DIR "/recipes/smolvlm-cpu.yaml");
  const PlanAhead one_tile = plan_ahead(recipe, 0);
  EXPECT_NE(one_tile.rows.find(" 64 of them an image's"), std::string::npos) << one_tile.rows;
  recipe.data.max_pixels = 1 << 20;
  EXPECT_NE(plan_ahead(recipe, 0).rows.find(" 320 of them"), std::string::npos);
  ASSERT_EQ(one_tile.cpu.size(), 2u);
  EXPECT_EQ(one_tile.cpu[0].changes, "fp32");
  EXPECT_EQ(one_tile.cpu[1].changes, "bf16");
  EXPECT_GT(one_tile.cpu[0].peak, 4. * 256'484'928);
  EXPECT_LT(one_tile.cpu[1].peak, one_tile.cpu[0].peak);
}

/// "about 1.6 GB" of a text, in bytes.
double bytes_in(const std::string& text) {
  std::istringstream words(text);
  double number = 0;
  std::string unit;
  words >> number >> unit;
  return number * (unit == "GB" ? 1e9 : unit == "MB" ? 1e6 : 0);
}

/// "passes of 4 rows of 2048 tokens, with an image of 640 x 480 in each.": what a recipe's comment
/// says of them.
std::string passes_of(const Recipe& recipe, const PlanAhead& plan) {
  const int64_t packed = recipe.train.max_tokens_per_step, rows = recipe.train.batch_size;
  const std::string image = ", with an image of 640 x 480 in each";
  if (packed > 0) return "packs of " + std::to_string(packed) + " tokens" + image + " row.";
  std::string of = plan.rows.substr(0, plan.rows.find(','));  // "rows of 2048 tokens"
  if (rows == 1) of.erase(of.find('s'), 1);
  return "passes of " + std::to_string(rows) + " " + of + image + ".";
}

/// The comment of each recipe states the figure of the command and for which passes it is, on a CPU
/// to 5%, since it depends on the processor.
TEST(PlanAhead, EachRecipeStatesItsMemory) {
  for (const std::string& name : shipped_names()) {
    const std::string file = LFT_SOURCE_DIR "/recipes/" + name + ".yaml", text = test::slurp(file),
                      mark = "# Memory by lft check --plan: ";
    Recipe recipe = read_recipe(file);
    if (name == "quickstart-base")  // its script makes the folder
      recipe.model.path = LFT_SOURCE_DIR "/recipes/quickstart/model";
    const PlanAhead plan = plan_ahead(recipe, 0);
    ASSERT_NE(text.find(mark), std::string::npos) << name;
    const size_t begin = text.find(mark) + mark.size(), end = text.find('\n', begin);
    const std::string line = text.substr(begin, end - begin),
                      passes = "\n# in " + passes_of(recipe, plan) + "\n";
    EXPECT_EQ(text.substr(end, passes.size()), passes) << name;
    if (name.starts_with("quickstart") || name == "smolvlm-cpu") {
      EXPECT_NEAR(bytes_in(line), plan.cpu.front().peak, 0.05 * plan.cpu.front().peak)
          << name << ": " << format_bytes(plan.cpu.front().peak);
    } else {
      EXPECT_EQ(line, format_bytes(plan.settings[0].peak) + " on a GPU") << name;
      EXPECT_EQ(peak_ahead(recipe), plan.settings[0].peak) << name;
    }
  }
}

/// The recipes of the source tree as the bundled ones.
class ModelTable : public ::testing::Test {
 protected:
  ModelTable() { ::setenv("LFT_RECIPES", LFT_SOURCE_DIR "/recipes", 1); }
  ~ModelTable() override { ::unsetenv("LFT_RECIPES"); }
};

TEST_F(ModelTable, IsThatOfTheReadme) {
  const std::string table = model_table(), page = test::slurp(LFT_SOURCE_DIR "/README.md");
  const size_t begin = page.find(table.substr(0, table.find('\n')));
  ASSERT_NE(begin, std::string::npos);
  EXPECT_EQ(page.substr(begin, page.find("\n\n", begin) + 1 - begin), table)
      << "put the output of lft recipe models into README.md";
}

/// Every model_type that lft reads has known checkpoints, and each of them has a recipe.
TEST_F(ModelTable, HasEveryFamilyAndARecipeForIt) {
  std::set<std::string> types;
  const std::vector<std::string> recipes = shipped_names();
  for (const std::string& name : hf::known_models()) {
    EXPECT_TRUE(std::ranges::count(recipes, family_recipe(name))) << name;
    types.insert(hf::ModelDir::shapes_of(name).config.model_type);
  }
  const std::vector<std::string> read = registry::model_types();
  EXPECT_EQ(types, std::set<std::string>(read.begin(), read.end()));
  EXPECT_EQ(family_recipe("somewhere/gemma-3-4b-it/"), "gemma3-lora");
  EXPECT_EQ(family_recipe("gemma-3-4b"), "");
}

TEST(PlanAhead, ConfigAloneIsEnoughAndEverySettingReadsBack) {
  const test::TinyRun run;
  std::filesystem::remove(run.model() + "/model.safetensors");
  Recipe recipe = run.recipe("out");
  recipe.data.train = "not/there.json";
  recipe.train.grad_accum = 2;
  const PlanAhead plan = plan_ahead(recipe, 0);
  ASSERT_GE(plan.settings.size(), 4u);
  for (const PlannedSetting& setting : plan.settings) {
    std::vector<std::string> sets;
    std::istringstream words(setting.changes);
    for (std::string word; words >> word;) sets.push_back(word);
    EXPECT_NO_THROW(parse_recipe(dump_recipe(recipe), "r.yaml", sets)) << setting.changes;
  }
  const std::vector<std::string> lines = plan_ahead_lines(plan);
  EXPECT_NE(lines[1].find("141 GB"), std::string::npos);
  EXPECT_TRUE(std::ranges::all_of(lines, [](const auto& line) { return line.size() <= 80; }));
  EXPECT_LFT_ERROR(ErrorKind::kUsage, "an image of this model does not fit into a row",
                   plan_ahead(recipe, 2));
}

/// A card of 24 GB has 24,564 MiB, of which the context takes 1,024.
TEST(PlanAhead, WhatFillsACardIsTight) {
  constexpr double kRoom = (24564.0 - 1024) * (1 << 20);
  const PlanAhead plan{
      .model = "m",
      .rows = "rows",
      .settings = {{"a=1", 0.93 * kRoom}, {"a=2", 0.95 * kRoom}, {"a=3", 1.01 * kRoom}}};
  const std::vector<std::string> lines = plan_ahead_lines(plan);
  const auto of_24_gb = [&](size_t line) { return lines.at(line).substr(46, 6); };
  EXPECT_EQ(lines.at(1).substr(46, 5), "24 GB");
  EXPECT_EQ(of_24_gb(2), "fits  ");
  EXPECT_EQ(of_24_gb(3), "tight ");
  EXPECT_EQ(of_24_gb(4), "-     ");
}

}  // namespace
}  // namespace lft::plan_ahead_test
