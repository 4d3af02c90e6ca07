// Norms of the layers' outputs: the right numbers, once each, from the step itself, without
// changing a bit of the run.
#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>

#include "models/family/model.h"
#include "models/layers/recompute.h"
#include "models/lora/inject.h"
#include "models/lora/inject_select.h"
#include "models/loss_sum.h"
#include "src/train/norms/activation_norms.h"
#include "src/train/run/trainer.h"
#include "tests/models/tiny.h"
#include "train/copy_killed.h"
#include "train/run_files.h"
#include "train/tiny_run.h"

namespace lft::activation_norms_test {
using namespace lft::io;
using namespace lft::layers;
using namespace lft::family;
using namespace lft::llava;
using namespace lft::lora;
using namespace lft::recipe;
using namespace lft::train;
namespace {

using test::events;

/// Every output, as a copy.
struct KeepOutputs : CallObserver {
  void after(const std::string& path, const torch::nn::Module& module,
             const std::vector<at::Tensor>& outputs) override {
    if (!outputs.empty()) kept[path].push_back(outputs.front().detach().to(at::kDouble).clone());
  }
  std::map<std::string, std::vector<at::Tensor>> kept;
};

std::vector<std::string> names(const std::vector<LayerValue>& values) {
  std::vector<std::string> out;
  for (const LayerValue& value : values) out.push_back(value.layer);
  return out;
}

TEST(ActivationNorms, LayersOfModulesAndTensors) {
  EXPECT_EQ(layer_of("language_model.model.layers.12.self_attn.q_proj.lora_A.weight"),
            "language_model.model.layers.12");
  EXPECT_EQ(layer_of("language_model.model.layers.12"), "language_model.model.layers.12");
  EXPECT_EQ(layer_of("vision_tower.vision_model.encoder.layers.3.mlp.fc1.bias"),
            "vision_tower.vision_model.encoder.layers.3");
  EXPECT_EQ(layer_of("multi_modal_projector.linear_2.weight"), "multi_modal_projector");
  EXPECT_EQ(layer_of("language_model.lm_head.lora_B.weight"), "language_model.lm_head");
  EXPECT_EQ(layer_of("language_model.model.norm.weight"), "language_model.model.norm");
}

TEST(ActivationNorms, AreTheRootMeanSquareOverAllMicroBatches) {
  const family::ModelConfig config = test::tiny_config();
  for (const at::ScalarType stored : {at::kFloat, at::kBFloat16}) {
    Model model = test::make_llava(config, stored);
    family::Batch first = test::tiny_batch(config), second = first;
    second.pixels = first.pixels * 3;
    KeepOutputs keep;
    {
      const ObserveCalls observe(keep);
      test::loss_sum(model, first);
      test::loss_sum(model, second);
    }
    ActivationNorms norms;
    {
      const ObserveCalls observe(norms);
      test::loss_sum(model, first);
      test::loss_sum(model, second);
    }
    const std::vector<LayerValue> rms = norms.rms();
    // The tower's last layer is after the feature layer (-2) and does not run.
    EXPECT_EQ(names(rms), (std::vector<std::string>{
                              "vision_tower.vision_model.encoder.layers.0",
                              "vision_tower.vision_model.encoder.layers.1", "multi_modal_projector",
                              "language_model.model.layers.0", "language_model.model.layers.1"}));
    for (const LayerValue& value : rms) {
      ASSERT_EQ(keep.kept.at(value.layer).size(), 2u) << value.layer;
      const at::Tensor both =
          at::cat({keep.kept.at(value.layer)[0].flatten(), keep.kept.at(value.layer)[1].flatten()});
      const double expected = both.square().mean().sqrt().item<double>();
      EXPECT_NEAR(value.value, expected, 1e-12 * expected) << value.layer;
    }
    norms.clear();
    EXPECT_TRUE(norms.rms().empty());
  }
}

TEST(ActivationNorms, WhatIsRunAgainInTheBackwardPassIsNotCounted) {
  const family::ModelConfig config = test::tiny_config();
  const family::Batch batch = test::tiny_batch(config);
  std::vector<std::vector<LayerValue>> found;
  for (const int64_t every : {0, 1, 2}) {
    Model model = test::make_llava(config);
    inject_lora(select_sites(linear_sites(*model), {"llm:all-linear", "vision:all-linear"}),
                {.rank = 4, .alpha = 8}, 3);
    make_trainable(*model, {"projector"});
    test::fill_adapters(model);
    ActivationNorms norms;
    KeepOutputs keep;
    for (CallObserver* observer :
         {static_cast<CallObserver*>(&norms), static_cast<CallObserver*>(&keep)}) {
      const ObserveCalls observe(*observer);
      const RecomputeGuard recompute(every);
      test::loss_sum(model, batch).backward();
    }
    EXPECT_EQ(keep.kept.at("language_model.model.layers.0").size(), every == 0 ? 1u : 2u)
        << "or there is nothing to test";
    found.push_back(norms.rms());
    ASSERT_EQ(found.back().size(), found.front().size());
    for (size_t i = 0; i < found.back().size(); ++i)
      EXPECT_EQ(found.back()[i].value, found.front()[i].value) << found.front()[i].layer;
  }
}

TEST(ActivationNorms, WhatIsNotFiniteShows) {
  Model model = test::make_llava(test::tiny_config());
  {
    const at::NoGradGuard no_grad;
    model->language_model->model->layers->operator[](1)->mlp->down_proj->weight[0][0] = NAN;
  }
  ActivationNorms norms;
  {
    const ObserveCalls observe(norms);
    test::loss_sum(model, test::tiny_batch(test::tiny_config()));
  }
  const std::vector<LayerValue> rms = norms.rms();
  EXPECT_TRUE(std::isfinite(rms.at(3).value));
  EXPECT_FALSE(std::isfinite(rms.at(4).value));
}

Recipe looking(const test::TinyRun& run, const std::string& out, int64_t every) {
  Recipe recipe = run.recipe(out);
  recipe.data.eval.clear();
  recipe.lora.dropout = 0.25;
  recipe.train.grad_accum = 2;
  recipe.checkpoint = {.every_steps = 1, .keep = 100, .at_step_zero = true};
  recipe.log.layer_activation_norms_every = every;
  recipe.log.layer_grad_norms_every = every;
  return recipe;
}

TEST(ActivationNorms, LookingChangesNoBitOfARun) {
  const test::TinyRun run;
  for (const std::string& precision : {std::string("fp32"), std::string("bf16")}) {
    for (const std::string& checkpointing : {std::string("none"), std::string("block")}) {
      std::vector<test::RunBytes> bytes;
      std::vector<Json> seen;
      for (const int64_t every : {0, 1, 4}) {
        Recipe recipe = looking(run, precision + checkpointing + std::to_string(every), every);
        recipe.precision.compute = precision;
        recipe.train.activation_checkpointing = checkpointing;
        ASSERT_EQ(train::train(recipe), 0);
        bytes.push_back(test::run_bytes(recipe.output_dir, 6));
        EXPECT_FALSE(bytes.back().adapter.empty());
        EXPECT_EQ(bytes.back(), bytes.front());
        seen = events(recipe.output_dir, "layer_activation_norms");
        EXPECT_EQ(seen.size(), every == 0   ? 0u
                               : every == 1 ? 6u
                                            : 2u)
            << "the first step and every so many";
        EXPECT_EQ(events(recipe.output_dir, "layer_grad_norms").size(), every == 0   ? 0u
                                                                        : every == 1 ? 6u
                                                                                     : 1u);
      }
      EXPECT_EQ(seen[0]["step"], 1);
      EXPECT_EQ(seen[1]["step"], 4);
      EXPECT_EQ(seen[0]["norm"], "rms");
      EXPECT_GT(seen[0]["layers"]["multi_modal_projector"], 0.0);
    }
  }
}

TEST(ActivationNorms, LayersOfTheGradientAddUpToTheWhole) {
  const test::TinyRun run;
  const Recipe recipe = looking(run, "out", 1);
  ASSERT_EQ(train::train(recipe), 0);
  const std::vector<Json> steps = test::step_lines(recipe.output_dir),
                          layers = events(recipe.output_dir, "layer_grad_norms");
  ASSERT_EQ(layers.size(), steps.size());
  for (size_t i = 0; i < steps.size(); ++i) {
    double squares = 0;
    for (const auto& [name, norm] : layers[i]["layers"].items())
      squares += norm.get<double>() * norm.get<double>();
    const double whole = steps[i]["grad_norm"];
    EXPECT_NEAR(std::sqrt(squares), whole, 1e-12 * whole);
  }
}

TEST(ActivationNorms, AResumedRunRecordsWhatAWholeOneDoes) {
  const test::TinyRun run;
  const Recipe whole = looking(run, "whole", 2);
  ASSERT_EQ(train::train(whole), 0);
  for (const int64_t step : {0, 3, 4}) {
    const Recipe resumed = looking(run, "resumed" + std::to_string(step), 2);
    test::copy_killed(whole.output_dir, resumed.output_dir, step);
    ASSERT_EQ(train::train(resumed, {.resume = true}), 0);
    for (const char* event : {"layer_activation_norms", "layer_grad_norms", "norm_warning"}) {
      EXPECT_EQ(events(resumed.output_dir, event), events(whole.output_dir, event))
          << event << " behind step " << step;
    }
    const std::string state = "/checkpoints/step-6/state.json";
    EXPECT_EQ(Json::parse(test::slurp(resumed.output_dir + state))["norm_watch"],
              Json::parse(test::slurp(whole.output_dir + state))["norm_watch"]);
  }
}

std::vector<std::string> warned(const Recipe& recipe) {
  std::vector<std::string> kinds;
  for (const Json& event : events(recipe.output_dir, "norm_warning"))
    kinds.push_back(event["kind"]);
  return kinds;
}

TEST(NormTrends, ARunThatConvergesHasNoWarning) {
  const test::TinyRun run;
  for (const double lr : {1e-3, 1e-2, 3e-2}) {  // with the last, gradients fall 250-fold at a loss
                                                // that these data let fall no further
    Recipe recipe = looking(run, "out" + std::to_string(lr), 10);
    recipe.lora.dropout = 0;
    recipe.train.grad_accum = 1;
    recipe.train.max_steps = 300;  // 100 epochs of 12 rows; the cosine ends at a learning rate of 0
    recipe.optim.lr = lr;
    recipe.checkpoint.every_steps = 1000;
    ASSERT_EQ(train::train(recipe), 0);
    EXPECT_LT(test::step_lines(recipe.output_dir).back()["loss"].get<double>(), 1.8);
    EXPECT_EQ(warned(recipe), std::vector<std::string>()) << lr;
  }
}

TEST(NormTrends, ALearningRateFarTooHighIsNamed) {
  const test::TinyRun run;
  for (const double lr : {0.3, 1.0}) {
    Recipe recipe = looking(run, "out" + std::to_string(lr), 10);
    recipe.lora.dropout = 0;
    recipe.train.grad_accum = 1;
    recipe.train.max_steps = 60;
    recipe.optim.lr = lr;
    recipe.checkpoint.every_steps = 1000;
    ASSERT_EQ(train::train(recipe), 0);
    const std::vector<std::string> kinds = warned(recipe);
    for (const char* kind : {"activation_blow_up", "module_collapse"}) {
      EXPECT_EQ(std::count(kinds.begin(), kinds.end(), kind), 1) << kind << " at " << lr;
    }
    for (const Json& event : events(recipe.output_dir, "norm_warning"))
      EXPECT_LE(event["step"].get<int64_t>(), 60);
  }
}

TEST(NormTrends, ALayerWhoseGradientExplodesIsNamedWithItsStep) {
  const test::TinyRun run;
  Recipe recipe = looking(run, "out", 10);
  recipe.train.grad_accum = 1;
  recipe.train.max_steps = 100;
  recipe.checkpoint.every_steps = 1000;
  const auto explode = [](int64_t step,
                          Optimizer& optimizer) {  // grows by a quarter per step from step 30 on
    for (Slot& slot : optimizer.slots()) {
      if (slot.param.name.find("layers.1.") == std::string::npos ||
          !slot.param.tensor.grad().defined())
        continue;
      slot.param.tensor.mutable_grad().mul_(std::pow(1.25, std::max<int64_t>(step - 30, 0)));
    }
  };
  ASSERT_EQ(train::train(recipe, {.gradients_ready = explode}), 0);
  const std::vector<Json> found = events(recipe.output_dir, "norm_warning");
  ASSERT_FALSE(found.empty());
  EXPECT_NE(found[0]["kind"].get<std::string>().find("blow_up"), std::string::npos)
      << found[0].dump();
  EXPECT_NE(found[0]["modules"][0].get<std::string>().find("language_model.model.layers.1."),
            std::string::npos)
      << found[0].dump();
  EXPECT_GT(found[0]["step"].get<int64_t>(), 50);
  const std::string report = test::slurp(recipe.output_dir + "/report.html");
  EXPECT_NE(report.find("norm_warning"), std::string::npos);
}

TEST(NormTrends, AnAdapterThatStopsLearningIsNamed) {
  const test::TinyRun run;
  Recipe recipe = looking(run, "out", 10);
  recipe.train.grad_accum = 1;
  recipe.train.max_steps = 60;
  recipe.checkpoint.every_steps = 1000;
  const auto stop = [](int64_t step, Optimizer& optimizer) {
    for (Slot& slot : optimizer.slots()) {
      if (step > 20 && slot.param.name.find("layers.0.mlp.up_proj") != std::string::npos)
        slot.param.tensor.mutable_grad().zero_();
    }
  };
  ASSERT_EQ(train::train(recipe, {.gradients_ready = stop}), 0);
  const std::vector<Json> found = events(recipe.output_dir, "norm_warning");
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0]["kind"], "module_collapse");
  EXPECT_EQ(found[0]["modules"], Json::array({"language_model.model.layers.0.mlp.up_proj"}));
}

}  // namespace
}  // namespace lft::activation_norms_test
