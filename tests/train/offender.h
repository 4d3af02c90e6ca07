// An adapter as from an extension, with a fault in it, in a tiny model that
// takes training steps.
#pragma once
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "models/base/call.h"
#include "models/lora/inject_select.h"
#include "train/tiny_steps.h"

namespace lft::test {

/// y = x W^T + x A^T B^T, with a fault at the end.
class Offender : public LinearAdapter {
 public:
  using Body = std::function<at::Tensor(Offender& self, const at::Tensor& x, const at::Tensor& y)>;
  Offender(const LinearImpl& layer, Body body, bool trains)
      : LinearAdapter("Offender"), body_(std::move(body)) {
    if (!trains) return;
    a = register_parameter("lora_A", at::full({2, layer.weight.size(1)}, 0.01),
                           /*requires_grad=*/false);
    b = register_parameter("lora_B", at::full({layer.weight.size(0), 2}, 0.01),
                           /*requires_grad=*/false);
  }
  at::Tensor forward(const at::Tensor& x, const Weight& weight_oi, const at::Tensor&) override {
    const at::Tensor y = at::matmul(x, weight_oi.dense().t());
    return body_(*this, x, a.defined() ? y + at::matmul(at::matmul(x, a.t()), b.t()) : y);
  }
  at::Tensor merged_oi(const at::Tensor& weight_oi) const override {
    return weight_oi + at::mm(b, a);
  }
  at::Tensor a, b;

 private:
  Body body_;
};

class OffenderTest : public TinySteps {
 protected:
  void SetUp() override { build({"llm:all-linear"}); }

  void build(const std::vector<std::string>& targets) {
    load();
    inject_lora(select_sites(linear_sites(*model), targets), {.rank = 4, .alpha = 8, .dropout = 0},
                7);
    {
      const at::NoGradGuard no_grad;
      for (auto& parameter : model->named_parameters()) {
        if (parameter.key().ends_with("lora_B")) parameter.value().fill_(0.02);
      }
    }
    take_trainables();
  }

  void take_trainables() {
    trainables = make_trainable(*model, {});
    optimizer =
        std::make_unique<Optimizer>(trainables, param_groups(trainables, 1e-2, -1), make_adamw({}));
  }

  void plant(const std::string& name, Offender::Body body, bool trains = true) {
    for (LinearSite& site : linear_sites(*model)) {
      if (site.name == name)
        site.layer->set_adapter(std::make_shared<Offender>(*site.layer, std::move(body), trains));
    }
    take_trainables();
  }

  Sample sample(uint64_t seed) const {
    std::mt19937_64 random(seed);
    Sample sample{.id = "s" + std::to_string(seed), .input_ids = {1}, .labels = {}, .images = {}};
    for (int i = 0; i < 9; ++i) sample.input_ids.push_back(3 + static_cast<int64_t>(random() % 50));
    sample.labels.resize(7, -100);
    for (size_t i = 7; i < 10; ++i) sample.labels.push_back(sample.input_ids[i]);
    return sample;
  }

  StepOutcome take(size_t micro_batches = 1) {
    std::vector<std::vector<Sample>> micro;
    for (size_t i = 0; i < micro_batches; ++i) micro.push_back({sample(2 * i), sample(2 * i + 1)});
    return TinySteps::take(std::move(micro));
  }

  /// The error of a step; kInternal.
  ErrorInfo fault(size_t micro_batches = 1) {
    try {
      take(micro_batches);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kInternal);
      EXPECT_EQ(current_module_path(), "");
      EXPECT_FALSE(error.info().found.empty());
      return error.info();
    }
    ADD_FAILURE() << "no error";
    return {};
  }
};

#define EXPECT_PIECE(text, piece) \
  EXPECT_NE((text).find(piece), std::string::npos) << "no \"" << (piece) << "\" in\n" << (text)

}  // namespace lft::test
