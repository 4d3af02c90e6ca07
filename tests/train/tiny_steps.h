// A tiny LLaVA and its training steps.
#pragma once
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "models/lora/inject_select.h"
#include "src/hf/model_dir.h"
#include "src/hf/weights_load.h"
#include "src/train/optim/adamw.h"
#include "src/train/step/step.h"
#include "support/llava.h"
#include "support/temp_dir.h"
#include "support/tiny_llava.h"
#include "train/names.h"

namespace lft::test {

class TinySteps : public ::testing::Test {
 protected:
  /// The same weights each time, without adapters and before the first step.
  void load() {
    model = load_model(ModelDir::open(dir_), at::kFloat, at::kCPU);
    layout->encode.config = model->config;
    layout->encode.images =
        test::squares(layout->encode.config, "pad", {0.5f, 0.5f, 0.5f}, {0.25f, 0.25f, 0.25f});
    state = {};
  }

  /// load(), with adapters and a trained projector, always the same. B is not zero, so that A
  /// learns from the first step.
  void build(double clip = 0, double lr = 1e-2) {
    load();
    inject_lora(select_sites(linear_sites(*model), {"llm:all-linear"}),
                {.rank = 4, .alpha = 8, .dropout = 0}, 7);
    trainables = make_trainable(*model, {"projector"});
    const at::NoGradGuard no_grad;
    for (Trainable& trainable : trainables) {
      if (trainable.name.find("lora_B") != std::string::npos) trainable.tensor.fill_(0.02);
    }
    optimizer =
        std::make_unique<Optimizer>(trainables, param_groups(trainables, lr, -1), make_adamw({}));
    options.clip_grad_norm = clip;
    scaler = LossScaler({.enabled = false});
  }

  StepOutcome take(std::vector<std::vector<Sample>> micro) {
    StepSamples samples;
    samples.micro = std::move(micro);
    samples.layout = layout;
    return train_step({model, *optimizer, scaler, Schedule{.kind = Schedule::Kind::kConstant}},
                      options, samples, state);
  }

  TempDir scratch_;
  const std::string dir_ = write_tiny_llava(scratch_.file("model"));
  Model model{nullptr};
  std::vector<Trainable> trainables;
  std::unique_ptr<Optimizer> optimizer;
  std::shared_ptr<BatchLayout> layout = std::make_shared<BatchLayout>();
  StepOptions options;
  StepState state;
  LossScaler scaler{{.enabled = false}};
};

}  // namespace lft::test
