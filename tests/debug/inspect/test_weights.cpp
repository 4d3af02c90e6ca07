// lft debug weights: planted differences between adapters, steps, output directories and models
// are reported with their sizes.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "src/checkpoint/tensor_file.h"
#include "src/debug/inspect/weights.h"
#include "src/io/files.h"
#include "src/train/run/trainer.h"
#include "support/expect_error.h"
#include "train/tiny_run.h"

namespace lft::weights_test {
using namespace lft::checkpoint;
using namespace lft::debug;
using namespace lft::lora;
using namespace lft::recipe;
using namespace lft::train;
namespace {

namespace fs = std::filesystem;
constexpr char kQ[] = "language_model.model.layers.0.self_attn.q_proj";
constexpr char kStoredQ[] = "base_model.model.model.language_model.layers.0.self_attn.q_proj";

/// One short run shared by all tests, and copies of its adapter to corrupt.
class Weights : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    run_ = new test::TinyRun;
    Recipe recipe = run_->recipe("out");
    recipe.data.eval.clear();
    recipe.train.max_steps = 2;
    ASSERT_EQ(train::train(recipe), 0);
  }
  static void TearDownTestSuite() { delete run_; }

  static std::string out(const std::string& below = "") { return run_->dir().file("out") + below; }
  /// The run's adapter with `change` applied to its tensors.
  std::string spoilt(const std::function<void(std::map<std::string, at::Tensor>&)>& change) {
    const std::string dir = scratch_.file("adapter" + std::to_string(++copies_));
    fs::copy(out("/adapter"), dir);
    std::map<std::string, at::Tensor> tensors =
        read_tensor_file(dir + "/adapter_model.safetensors");
    change(tensors);
    write_tensor_file(dir + "/adapter_model.safetensors", tensors);
    return dir;
  }
  static const ModuleChange& module_of(const WeightsReport& report, const std::string& name) {
    for (const ModuleChange& row : report.modules) {
      if (row.module == name) return row;
    }
    throw std::out_of_range(name);
  }

  static test::TinyRun* run_;
  test::TempDir scratch_;
  int copies_ = 0;
};
test::TinyRun* Weights::run_ = nullptr;

TEST_F(Weights, TheSameThingTwiceHasNotChanged) {
  for (const std::string& path : {out("/adapter"), out("/checkpoints/step-2"), run_->model()}) {
    const WeightsReport report = compare_weights(path, path);
    EXPECT_FALSE(report.changed()) << path;
    EXPECT_FALSE(report.modules.empty()) << path;
    EXPECT_EQ(weights_lines(report).back(), "nothing changed");
  }
}

TEST_F(Weights, AnAdapterAndItsRunsLastStepAreTheSameWeights) {
  EXPECT_FALSE(compare_weights(out("/adapter"), out("/checkpoints/step-2")).changed());
  EXPECT_FALSE(compare_weights(out(), out("/checkpoints"))
                   .changed());  // an output_dir means its adapter, a folder its newest step
}

TEST_F(Weights, FromStepZeroEveryModuleHasChanged) {
  const WeightsReport report = compare_weights(out("/checkpoints/step-0"), out());
  EXPECT_TRUE(report.only_a.empty() && report.only_b.empty() && report.shapes.empty());
  ASSERT_GT(report.modules.size(), 10u);
  for (size_t i = 0; i < report.modules.size(); ++i) {
    EXPECT_GT(report.modules[i].changed, 0) << report.modules[i].module;
    EXPECT_TRUE(std::isfinite(report.modules[i].relative))
        << report.modules[i].module;  // A is not zero at the start
    if (i > 0) {
      EXPECT_LE(report.modules[i].relative, report.modules[i - 1].relative);
    }
  }
}

TEST_F(Weights, APlantedDifferenceHasTheSizeItWasGiven) {
  const std::string b = spoilt([](auto& tensors) {
    at::Tensor& tensor = tensors.at(std::string(kStoredQ) + ".lora_A.weight");
    tensor.view(-1)[3] += 3.0f;
    tensor.view(-1)[5] -= 4.0f;
  });
  std::map<std::string, at::Tensor> stored =
      read_tensor_file(out("/adapter/adapter_model.safetensors"));
  const at::Tensor a_ri = stored.at(std::string(kStoredQ) + ".lora_A.weight"),
                   b_or = stored.at(std::string(kStoredQ) + ".lora_B.weight");
  double squares = 0;
  for (const at::Tensor& tensor : {a_ri, b_or}) {
    for (int64_t i = 0; i < tensor.numel(); ++i)
      squares += std::pow(tensor.view(-1)[i].item<double>(), 2);
  }
  const WeightsReport report = compare_weights(out("/adapter"), b);
  const ModuleChange& row = report.modules.front();
  EXPECT_EQ(row.module, kQ);
  EXPECT_EQ(row.changed, 2);
  EXPECT_EQ(row.elements, a_ri.numel() + b_or.numel());
  EXPECT_NEAR(row.relative, 5 / std::sqrt(squares),
              1e-5 * row.relative);  // the sums were rounded to float32
  EXPECT_NEAR(row.max_abs, 4, 1e-6);
  EXPECT_EQ(row.notes, std::vector<std::string>{"lora_B unchanged"});
  for (size_t i = 1; i < report.modules.size(); ++i) EXPECT_EQ(report.modules[i].changed, 0);
  EXPECT_EQ(weights_lines(report).back(),
            "1 of " + std::to_string(report.modules.size()) + " modules changed");
}

TEST_F(Weights, MissingExtraAndMisshapenTensorsAreNamed) {
  const auto pair = [](const std::string& part) {
    return std::string(kStoredQ) + ".lora_" + part + ".weight";
  };
  const std::string without = spoilt([&](auto& tensors) {
    tensors.erase(pair("A"));
    tensors.erase(pair("B"));
  });
  const WeightsReport missing = compare_weights(out("/adapter"), without),
                      extra = compare_weights(without, out("/adapter"));
  EXPECT_EQ(missing.only_a, (std::vector<std::string>{std::string(kQ) + ".lora_A.weight",
                                                      std::string(kQ) + ".lora_B.weight"}));
  EXPECT_EQ(extra.only_b, missing.only_a);
  EXPECT_TRUE(missing.changed());
  const std::string wider = spoilt([&](auto& tensors) {
    tensors.at(pair("A")) = at::zeros({4, 99});
  });
  const WeightsReport shapes = compare_weights(out("/adapter"), wider);
  ASSERT_EQ(shapes.shapes.size(), 1u);
  EXPECT_NE(shapes.shapes.front().find("and [4, 99]"), std::string::npos) << shapes.shapes.front();
}

TEST_F(Weights, ANaNIsAChangeOnceAndAnotherDtypeANote) {
  const auto plant = [](auto& tensors) {
    tensors.at(std::string(kStoredQ) + ".lora_A.weight").view(-1)[1] = NAN;
  };
  const std::string nan = spoilt(plant), again = spoilt(plant);
  const WeightsReport report = compare_weights(out("/adapter"), nan);
  EXPECT_EQ(report.modules.front().module, kQ);
  EXPECT_EQ(report.modules.front().changed, 1);
  EXPECT_TRUE(std::isnan(report.modules.front().relative) &&
              std::isnan(report.modules.front().max_abs));
  EXPECT_EQ(report.modules.front().notes.front(), "lora_A: 1 not finite in B");
  EXPECT_FALSE(compare_weights(nan, again).changed());
  const std::string half = spoilt([](auto& tensors) {
    at::Tensor& tensor = tensors.at(std::string(kStoredQ) + ".lora_B.weight");
    tensor = tensor.to(at::kBFloat16);
  });
  const WeightsReport rounded = compare_weights(out("/adapter"), half);
  const ModuleChange& row = module_of(rounded, kQ);
  EXPECT_EQ(row.notes.front(), "lora_B: F32 and BF16");
  EXPECT_GT(row.changed, 0);
  EXPECT_LT(row.relative, 0x1p-8);  // half an ulp of BF16 per element
}

TEST_F(Weights, WhatCannotBeReadIsRefused) {
  EXPECT_LFT_ERROR(ErrorKind::kInput, "no weights to compare",
                   compare_weights(out(), run_->dir().file("images")));
  EXPECT_LFT_ERROR(ErrorKind::kInput, "no weights to compare",
                   compare_weights(run_->dir().file("nowhere"), out()));
  EXPECT_LFT_ERROR(ErrorKind::kInput, "a file",
                   compare_weights(run_->dir().file("rows.json"), out()));
  const std::string other =
      scratch_.file("incidents/step-9");  // an incident is a folder of weights too
  scratch_.write("incidents/step-9/incident.json", "{}");
  write_tensor_file(other + "/trainables.safetensors", {{"elsewhere.weight", at::ones({2})}});
  EXPECT_LFT_ERROR(ErrorKind::kUsage, "incident of 1", compare_weights(out(), other));
  const std::string cut = scratch_.file("step-2");
  fs::copy(out("/checkpoints/step-2"), cut);
  fs::resize_file(cut + "/trainables.safetensors",
                  fs::file_size(cut + "/trainables.safetensors") - 4);
  EXPECT_LFT_ERROR(ErrorKind::kCheckpoint, "trainables.safetensors", compare_weights(cut, out()));
}

}  // namespace
}  // namespace lft::weights_test
