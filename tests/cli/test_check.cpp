// lft check: everything that train would refuse, with train's exit codes, without writing a byte.
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <limits>
#include <map>

#include "cli/run_lft.h"
#include "debug/stored_model.h"
#include "models/family/model.h"
#include "models/lora/inject_select.h"
#include "src/hf/adapter/adapter.h"
#include "src/hf/adapter/adapter_save.h"
#include "src/hf/weights_load.h"
#include "support/poison.h"

namespace lft::check_test {
using namespace lft::hf;
using namespace lft::family;
using namespace lft::llava;
using namespace lft::lora;
using namespace lft::recipe;
namespace {

namespace fs = std::filesystem;
using test::Ran;
using test::run_lft;
using test::TinyRun;

using Listing = std::map<std::string, std::pair<uintmax_t, fs::file_time_type>>;
Listing listing(const std::string& folder) {
  Listing found;
  found[folder] = {0, fs::last_write_time(folder)};
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    found[entry.path().string()] = {entry.is_regular_file() ? entry.file_size() : 0,
                                    entry.last_write_time()};
  }
  return found;
}

class Check : public ::testing::Test {
 protected:
  Check() : recipe_(run_.dir().write("recipe.yaml", dump_recipe(run_.recipe("out")))) {}

  /// Runs it and checks that nothing was written, for any result.
  Ran check(const std::string& sets = "") {
    const Listing before = listing(run_.dir().path());
    const Ran ran = run_lft("check " + recipe_ + " " + sets);
    EXPECT_EQ(listing(run_.dir().path()), before) << sets;
    return ran;
  }
  void expect_error(const std::string& sets, int code, const std::vector<std::string>& pieces) {
    const Ran ran = check(sets);
    EXPECT_EQ(ran.code, code) << ran.err;
    EXPECT_EQ(ran.count("error:"), 1) << ran.err;
    for (const std::string& piece : pieces)
      EXPECT_NE(ran.err.find(piece), std::string::npos) << "no \"" << piece << "\" in:\n"
                                                        << ran.err;
    EXPECT_EQ(ran.out.find("it will train"), std::string::npos) << ran.out;
  }
  std::string rows(const std::string& name, const std::string& question, bool image) {
    nlohmann::json row = {
        {"id", name},
        {"conversations",
         {{{"from", "human"}, {"value", question}}, {{"from", "gpt"}, {"value", "red"}}}}};
    if (image) row["image"] = "red0.bmp";
    return "--set data.train=" +
           run_.dir().write(name + ".json", nlohmann::json::array({row}).dump());
  }

  TinyRun run_;
  std::string recipe_;
};

TEST_F(Check, PrintsPlanProofAndMemoryAndExitsWithZero) {
  const Ran ran = check();
  EXPECT_EQ(ran.code, 0) << ran.err;
  for (const char* piece :
       {"precision  fp32", "llm layers.0-1.mlp.down_proj ", "projector linear_2 ", "parameters (",
        "memory     predicted for the largest micro-batch of the run, of step ",
        ": 4 rows of up to ", "frozen weights ", "activations, decoder layers ", "free: it fits",
        "train.activation_checkpointing=block ", "were taken by the model", "\nit will train\n"}) {
    EXPECT_NE(ran.out.find(piece), std::string::npos) << "no \"" << piece << "\" in:\n" << ran.out;
  }
  EXPECT_EQ(ran.out.find(" no "), std::string::npos) << ran.out;  // every parameter is reached
  EXPECT_FALSE(fs::exists(run_.dir().file("out")));
}

TEST_F(Check, LowPrecisionToo) {
  for (const char* compute : {"bf16", "fp16", "auto"}) {
    const Ran ran = check(std::string("--set precision.compute=") + compute);
    EXPECT_EQ(ran.code, 0) << compute << ": " << ran.err;
    EXPECT_NE(ran.out.find("it will train"), std::string::npos) << ran.out;
  }
}

TEST_F(Check, ALossThatIsNotFinite) {
  test::change_model(run_, [](test::StoredTensors& tensors) {
    test::poison_token(tensors, 3 + 'W', 0, std::numeric_limits<float>::quiet_NaN());
  });
  const std::string unchecked = "--set model.check_weights=false ";
  expect_error(unchecked, 5, {"the loss before training is not finite", "lft debug base"});
  expect_error(unchecked + "--set precision.compute=bf16 --set precision.recovery=stop", 5,
               {"the loss before training is not finite"});
}

TEST_F(Check, WhatCanNeverLearnIsNamedAndLeftOut) {
  const Ran ran = check("--set 'lora.targets=[llm:all-linear, vision:all-linear]'");
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_NE(ran.out.find("left out   vision_tower.vision_model.encoder.layers.2."),
            std::string::npos)
      << ran.out;
  EXPECT_NE(ran.out.find(", and 3 more: no output of it is used"), std::string::npos) << ran.out;
  expect_error("--set 'lora.targets=[vision:*layers.2.*]' --set full=[]", 2,
               {"nothing is trainable", "vision_feature_layer -2"});
}

TEST_F(Check, TargetsThatMatchNothingOrAnotherTower) {
  expect_error("--set lora.targets=[llm:q_project]", 2,
               {"no linear layer of llm matches q_project", "the closest in llm: q_proj"});
  expect_error("--set lora.targets=[vision:gate_proj]", 2,
               {"no linear layer of vision matches", "it would match in llm (2 layers)"});
  expect_error("--set lora.targets=[q_proj]", 2, {"scope:pattern"});
  expect_error("--set lora.targets=[] --set full=[]", 2, {"lora.targets is empty"});
}

TEST_F(Check, NoSupervisedTokenInTheWholeDataset) {
  expect_error(rows("cut", std::string(600, 'q'), false) + " --set full=[]", 3,
               {"no sample has a supervised token", "1 samples: 0 with a supervised token",
                "data.max_tokens"});
}

TEST_F(Check, NoSupervisedTokenInTheHeldOutRows) {
  nlohmann::json data = nlohmann::json::parse(test::slurp(run_.dir().file("rows.json")));
  for (nlohmann::json& row : data) row["conversations"][1]["loss"] = false;
  const std::string set = "--set data.eval=" + run_.dir().write("masked.json", data.dump());
  expect_error(set, 3, {"no held-out row has a supervised token", "masked.json", "12 rows"});
  const Ran trained = run_lft("train " + recipe_ + " " + set);
  EXPECT_EQ(trained.code, 3) << trained.err;
  EXPECT_EQ(trained.count("no held-out row has a supervised token"), 1) << trained.err;
  EXPECT_FALSE(fs::exists(run_.dir().file("out")));
}

TEST_F(Check, AProjectorWithoutAnImage) {
  expect_error(rows("text", "What?", false), 2, {"no image can teach the projector"});
  EXPECT_EQ(check("--set full=[]").code, 0);  // the same rows are used for the adapters
}

TEST_F(Check, RecipeAndInputErrorsAreThoseOfTrain) {
  expect_error("--set lora.rank=-3", 2, {"lora.rank"});
  expect_error("--set lora.rank=100", 2, {"the rank does not fit a layer"});
  expect_error("--set model.path=" + run_.dir().file("nowhere"), 3, {"nowhere"});
  run_.dir().write("images/red0.bmp", "BM");
  expect_error("--set data.shuffle=false", 3, {"red0.bmp"});
}

TEST_F(Check, ABadImageBehindTheProbeIsFoundAndTrainSaysTheSame) {
  nlohmann::json data = nlohmann::json::parse(test::slurp(run_.dir().file("rows.json")));
  data[9]["image"] = "missing.bmp";
  data[10]["image"] = "cut.bmp";
  run_.dir().write("images/cut.bmp", "BM");
  run_.dir().write("bad.json", data.dump());
  const std::string bad = run_.dir().file("bad.json"), skip = " --set data.on_bad_sample=skip";
  for (const char* field : {"data.train", "data.eval"}) {
    const std::string set = std::string("--set data.shuffle=false --set ") + field + "=" + bad;
    expect_error(set, 3,
                 {"missing.bmp", "bad.json[9] (id \"row9\")",
                  std::string("2 of 12 samples of ") + field, "data.image_root"});
    const Ran trained = run_lft("train " + recipe_ + " " + set);
    EXPECT_EQ(trained.code, 3) << trained.err;
    EXPECT_NE(trained.err.find("bad.json[9]"), std::string::npos) << trained.err;
    EXPECT_FALSE(fs::exists(run_.dir().file("out"))) << "a step was taken";

    expect_error(set + skip + " --set data.max_bad=1", 3,
                 {"data.max_bad = 1", "bad.json[9]", field});
    const Ran skipped = check(set + skip + " --set data.max_bad=2");
    EXPECT_EQ(skipped.code, 0) << skipped.err;
    EXPECT_EQ(
        skipped.count(std::string(field) + ": 2 of 12 samples cannot be read and will be left out"),
        1)
        << skipped.err;
  }
}

TEST_F(Check, RowsThatTeachNothingAreCounted) {
  nlohmann::json data = nlohmann::json::parse(test::slurp(run_.dir().file("rows.json")));
  data[11]["conversations"][0]["value"] = "<image>\n" + std::string(600, 'q');
  const Ran ran = check("--set data.train=" + run_.dir().write("long.json", data.dump()));
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_EQ(ran.count("1 of 12 samples have no supervised token"), 1) << ran.err;
}

TEST_F(Check, PlanNeedsNeitherWeightsNorData) {
  const Ran ran = check(
      "--plan --tokens 800 --set model.path=llava-hf/llava-1.5-7b-hf --set data.train=none.json");
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_NE(ran.out.find("the recipe as it is"), std::string::npos) << ran.out;
  EXPECT_NE(ran.out.find("fits"), std::string::npos) << ran.out;
  EXPECT_EQ(check("--plan --set model.path=llava-hf/unheard-of").code, 3);
  const Ran family = test::run_lft("check --plan Qwen/Qwen3-VL-8B-Thinking --tokens 1000");
  EXPECT_EQ(family.code, 0) << family.err;
  EXPECT_TRUE(
      family.out.starts_with("recipe qwen3-vl-lora with model.path=Qwen/Qwen3-VL-8B-Thinking\n"
                             "Qwen/Qwen3-VL-8B-Thinking, rows of 1000 tokens"))
      << family.out;
  const Ran summary = test::run_lft("summary llava-hf/llava-1.5-13b-hf");
  EXPECT_EQ(summary.code, 0) << summary.err;
  EXPECT_NE(summary.out.find("13,351,494,656"), std::string::npos) << summary.out;
}

TEST_F(Check, LearningRatesThatMoveNothing) {
  for (const std::string& set :
       {std::string("--set optim.lr=0"), std::string("--set train.max_steps=1"),
        std::string("--set optim.lr=0 --set optim.projector_lr=0.1")}) {
    expect_error(set, 2, {"0", "optim."});
  }
  EXPECT_EQ(check("--set train.max_steps=1 --set optim.warmup_ratio=0").code, 0);
  EXPECT_EQ(check("--set optim.projector_lr=0").code, 0);  // the adapters change
}

TEST_F(Check, WhatDoesNotFitIsAnErrorAndNothingElse) {
  const std::string set = "--set train.batch_size=65536";
  nlohmann::json row = nlohmann::json::parse(test::slurp(run_.dir().file("rows.json")))[0],
                 data = nlohmann::json::array();
  row["conversations"][1]["value"] = std::string(400, 'a');
  for (int i = 0; i < 20000; ++i) data.push_back(row);
  const Ran ran = check(
      set + " --set data.eval=null --set data.train=" + run_.dir().write("many.json", data.dump()));
  EXPECT_EQ(ran.code, 6) << ran.err;
  EXPECT_NE(ran.out.find("it does not fit"), std::string::npos) << ran.out;
  EXPECT_EQ(ran.out.find("it will train"), std::string::npos) << ran.out;
  EXPECT_EQ(ran.count("error: the run needs more memory than is free"), 1) << ran.err;
  EXPECT_NE(ran.err.find("train."), std::string::npos) << ran.err;  // the remedy
}

/// Also after a run, and while it writes: check reads the recipe, and train refuses the folder.
TEST_F(Check, AnOutputDirectoryThatContainsARunIsNoticed) {
  run_.dir().write("out/metrics.jsonl", "");
  run_.dir().write("out/.lock", "of an earlier run");
  const Ran ran = check();
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_NE(ran.err.find("output_dir contains a run already"), std::string::npos) << ran.err;
  EXPECT_NE(ran.out.find("it will train"), std::string::npos) << ran.out;
  const Ran train = run_lft("train " + recipe_);
  EXPECT_EQ(train.code, 2);
  EXPECT_NE(train.err.find("output_dir contains a run"), std::string::npos) << train.err;
}

TEST_F(Check, TokensBelongToThePlan) {
  expect_error("--tokens 800", 2, {"--tokens", "add --plan"});
}

TEST_F(Check, ALoadedAdapterIsUnfrozenWithANotice) {
  Model model = load_model(ModelDir::open(run_.model()), at::kFloat, at::kCPU);
  const LoraOptions lora{.rank = 4, .alpha = 8, .dropout = 0};
  inject_lora(select_sites(linear_sites(*model), {"llm:all-linear"}), lora, 1);
  {
    const at::NoGradGuard no_grad;
    for (auto& parameter : model->named_parameters()) {
      if (parameter.key().ends_with("lora_B")) parameter.value().fill_(0.01);
    }
  }
  const std::string adapter = run_.dir().file("adapter");
  save_adapter(adapter, model, lora, {"projector"}, {});
  const std::string config = test::slurp(adapter + "/adapter_config.json");
  nlohmann::json json = nlohmann::json::parse(config);
  for (const bool inference : {true, false}) {
    json["inference_mode"] = inference;
    run_.dir().write("adapter/adapter_config.json", json.dump(2));
    const Ran ran = check("--set lora.init_from=" + adapter);
    EXPECT_EQ(ran.code, 0) << ran.err;
    EXPECT_EQ(ran.count("inference_mode: true; it is unfrozen"), inference ? 1 : 0) << ran.err;
    EXPECT_NE(ran.out.find("it will train"), std::string::npos) << ran.out;
  }
}

}  // namespace
}  // namespace lft::check_test
