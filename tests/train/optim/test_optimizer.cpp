// AdamW: groups, counts, and the effect of a verdict on a step. The numbers are torch 2.11's in
// float64:
//   o = torch.optim.AdamW([dict(params=[p], lr=0.1), dict(params=[q], lr=0.02)], betas=(0.8, 0.95),
//   eps=1e-6, weight_decay=0.1) three steps with both learning rates times 1, 0.5, 0.25; q.grad is
//   None in the second.
#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <limits>

#include "src/train/optim/adamw.h"
#include "src/train/optim/optimizer.h"
#include "src/train/optim/rules.h"

namespace lft::optimizer_test {
using namespace lft::lora;
using namespace lft::ops;
using namespace lft::train;
namespace {

std::vector<Trainable> two_tensors() {
  at::Tensor p = at::tensor({1.0f, -2.0f, 0.5f}), q = at::tensor({0.25f, -0.75f}).view({1, 2});
  return {{"layer.lora_A.weight", "llm", p.requires_grad_()},
          {"multi_modal_projector.linear_1.weight", "projector", q.requires_grad_()}};
}

/// One update, neither clipped nor skipped.
void take(Optimizer& optimizer, double factor) {
  optimizer.step(factor, check_gradients(optimizer.gradients(), 1, 0, {}));
  optimizer.commit(true);
}

void expect_near(const at::Tensor& tensor, const std::vector<double>& wanted) {
  ASSERT_EQ(tensor.numel(), static_cast<int64_t>(wanted.size()));
  const at::Tensor flat = tensor.detach().view(-1).contiguous();
  // Three float32 updates, each rounding to half an ulp of numbers below 2.
  for (size_t i = 0; i < wanted.size(); ++i)
    EXPECT_NEAR(flat.const_data_ptr<float>()[i], wanted[i], 6e-7) << "element " << i;
}

TEST(AdamW, EqualsTorchWithGroupsDecayAndAnAbsentGradient) {
  std::vector<Trainable> trainables = two_tensors();
  Optimizer optimizer(trainables, param_groups(trainables, 0.1, 0.02),
                      make_adamw({.betas = {0.8, 0.95}, .eps = 1e-6, .weight_decay = 0.1}));
  ASSERT_EQ(optimizer.groups().size(), 2u);
  at::Tensor& p = trainables[0].tensor;
  at::Tensor& q = trainables[1].tensor;
  const std::vector<at::Tensor> gp = {at::tensor({0.1f, -0.2f, 0.3f}),
                                      at::tensor({0.4f, 0.5f, -0.6f}),
                                      at::tensor({-1.0f, 0.0f, 2.0f})};
  const std::vector<at::Tensor> gq = {at::tensor({1.0f, -1.0f}).view({1, 2}), at::Tensor(),
                                      at::tensor({0.5f, 0.25f}).view({1, 2})};
  const double factors[] = {1, 0.5, 0.25};
  for (int i = 0; i < 3; ++i) {
    p.mutable_grad() = gp[i];
    q.mutable_grad() = gq[i];
    take(optimizer, factors[i]);
  }
  expect_near(p, {0.8481189689812021, -1.8994362665616373, 0.3988256522639316});
  expect_near(q, {0.22478199435270127, -0.7260155575625361});
  expect_near(optimizer.slots()[0].moment("exp_avg"), {-0.1232, 0.0544, 0.3424});
  expect_near(optimizer.slots()[0].moment("exp_avg_sq"), {0.05805125, 0.01368, 0.22116125});
  EXPECT_EQ(optimizer.slots()[0].steps, 3);
  EXPECT_EQ(optimizer.slots()[1].steps, 2);
}

TEST(AdamW, AbsentGradientLeavesEveryBit) {
  std::vector<Trainable> trainables = two_tensors();
  Optimizer optimizer(trainables, param_groups(trainables, 0.1, -1),
                      make_adamw({.weight_decay = 0.1}));
  const at::Tensor before = trainables[1].tensor.detach().clone();
  trainables[0].tensor.mutable_grad() = at::ones({3});
  take(optimizer, 1);
  EXPECT_TRUE(at::equal(trainables[1].tensor, before));
  EXPECT_EQ(optimizer.slots()[1].steps, 0);
  optimizer.drop_gradients();
  EXPECT_FALSE(trainables[0].tensor.grad().defined());
}

TEST(AdamW, ANonFiniteVerdictLeavesEveryBitAndTheCount) {
  std::vector<Trainable> trainables = two_tensors();
  Optimizer optimizer(trainables, param_groups(trainables, 0.1, -1),
                      make_adamw({.weight_decay = 0.1}));
  for (Trainable& trainable : trainables)
    trainable.tensor.mutable_grad() = at::ones_like(trainable.tensor);
  take(optimizer, 1);
  const auto everything = [&] {
    std::vector<at::Tensor> tensors;
    for (const Slot& slot : optimizer.slots()) {
      for (const at::Tensor& tensor :
           {slot.param.tensor, slot.moment("exp_avg"), slot.moment("exp_avg_sq")})
        tensors.push_back(tensor.detach().clone());
    }
    return tensors;
  };
  const std::vector<at::Tensor> before = everything();
  trainables[1].tensor.mutable_grad()[0][1] = std::numeric_limits<float>::infinity();
  const GradVerdict verdict = check_gradients(optimizer.gradients(), 1, 1, {});
  optimizer.step(1, verdict);
  const GradStats stats = read_stats(verdict);
  EXPECT_EQ(stats.first_bad, 1);  // a slot's index
  optimizer.commit(!stats.found_inf);
  const std::vector<at::Tensor> after = everything();
  for (size_t i = 0; i < before.size(); ++i) EXPECT_TRUE(at::equal(before[i], after[i])) << i;
  for (const Slot& slot : optimizer.slots()) EXPECT_EQ(slot.steps, 1);
}

TEST(AdamW, CommitCountsTheSlotsOfTheLastStepOnce) {
  std::vector<Trainable> trainables = two_tensors();
  Optimizer optimizer(trainables, param_groups(trainables, 0.1, -1), make_adamw({}));
  trainables[1].tensor.mutable_grad() = at::ones({1, 2});
  const std::vector<at::Tensor> gradients = optimizer.gradients();
  ASSERT_EQ(gradients.size(), 2u);
  EXPECT_FALSE(gradients[0].defined());
  EXPECT_TRUE(gradients[1].is_same(trainables[1].tensor.grad()));
  optimizer.step(1, check_gradients(gradients, 1, 0, {}));
  optimizer.drop_gradients();
  optimizer.commit(true);
  optimizer.commit(true);
  EXPECT_EQ(optimizer.slots()[0].steps, 0);
  EXPECT_EQ(optimizer.slots()[1].steps, 1);
}

TEST(AdamW, ClipsByTheVerdict) {
  std::vector<Trainable> trainables = two_tensors();
  Optimizer optimizer(trainables, param_groups(trainables, 0.1, -1), make_adamw({}));
  trainables[0].tensor.mutable_grad() = at::tensor({3.0f, 4.0f, 0.0f});
  optimizer.step(1, check_gradients(optimizer.gradients(), 1, 0.5, {}));
  expect_near(optimizer.slots()[0].moment("exp_avg"),
              {0.03, 0.04, 0});  // 0.1 * g * 0.5 / (5 + 1e-6)
}

TEST(AdamW, GradientsStayBoundToOneBufferAndCountFromWhatIsWritten) {
  std::vector<Trainable> trainables = two_tensors();
  Optimizer optimizer(trainables, param_groups(trainables, 0.1, -1), make_adamw({}));
  optimizer.zero_gradients();
  const std::vector<at::Tensor> bound = {trainables[0].tensor.grad(), trainables[1].tensor.grad()};
  ASSERT_TRUE(bound[0].is_alias_of(bound[1]));
  EXPECT_FALSE(optimizer.gradients()[0].defined() || optimizer.gradients()[1].defined());
  for (int step = 1; step <= 3; ++step) {
    const at::Tensor p = trainables[0].tensor;
    (p * static_cast<double>(step)).sum().backward();
    (p * 10).sum().backward();
    EXPECT_TRUE(optimizer.gradients()[0].is_same(bound[0]));
    EXPECT_TRUE(at::equal(bound[0], at::full({3}, 10.0f + static_cast<float>(step))))
        << "not zeroed: " << bound[0];
    EXPECT_FALSE(optimizer.gradients()[1].defined());
    take(optimizer, 1);
    EXPECT_EQ(optimizer.slots()[0].steps, step);
    EXPECT_EQ(optimizer.slots()[1].steps, 0);
    optimizer.forget_gradients();
    EXPECT_FALSE(optimizer.gradients()[0].defined());
    EXPECT_TRUE(p.grad().is_same(bound[0]));
    optimizer.zero_gradients();
  }
  (trainables[1].tensor * 0).sum().backward();
  EXPECT_TRUE(optimizer.gradients()[1].defined()) << "a gradient of zeros is one";
  EXPECT_FALSE(optimizer.gradients()[0].defined());
  optimizer.gradients_written("llm");
  EXPECT_TRUE(optimizer.gradients()[0].defined());
  trainables[0].tensor.mutable_grad() = at::Tensor();
  EXPECT_FALSE(optimizer.gradients()[0].defined());
  trainables[1].tensor.mutable_grad() = at::ones({1, 2});  // another tensor is unaffected
  EXPECT_TRUE(at::equal(optimizer.gradients()[1], at::ones({1, 2})));
  optimizer.zero_gradients();
  EXPECT_TRUE(trainables[0].tensor.grad().is_same(bound[0]) &&
              trainables[1].tensor.grad().is_same(bound[1]));
  optimizer.drop_gradients();
  for (const Trainable& trainable : trainables) EXPECT_FALSE(trainable.tensor.grad().defined());
}

/// For masters, one below and one above the minimum size of 8-bit moments.
std::vector<Trainable> shadowed(double scale) {
  std::vector<Trainable> trainables;
  for (const int64_t rows : {3, 513}) {
    at::Tensor master = at::linspace(-2, 3, 8 * rows).view({rows, 8}).requires_grad_();
    trainables.push_back({"layer" + std::to_string(rows) + ".lora_B.weight", "llm", master,
                          c10::make_intrusive<Shadow>(master, scale)});
  }
  return trainables;
}

void expect_shadows(const std::vector<Trainable>& trainables, at::ScalarType dtype, double scale) {
  for (const Trainable& trainable : trainables) {
    const at::Tensor copy = trainable.shadow->kept(dtype), master = trainable.tensor.detach();
    ASSERT_TRUE(copy.defined()) << trainable.name;
    EXPECT_TRUE(at::equal(copy, (master * (dtype == at::kBFloat16 ? scale : 1)).to(dtype)))
        << trainable.name;
  }
}

TEST(AdamW, UpdatesWriteTheShadowsWhereverTheMomentsAre) {
  const std::vector<std::pair<std::string, MomentStorage>> kept = {
      {"adamw", {}},
      {"adamw8bit", {}},
      {"adamw", {.offload = true, .piece = kChunk}},
      {"adamw8bit", {.offload = true, .piece = kChunk}}};
  for (const auto& [rule, storage] : kept) {
    for (const at::ScalarType dtype : {at::kBFloat16, at::kHalf}) {
      const std::vector<Trainable> trainables = shadowed(1.7);
      Optimizer optimizer(trainables, param_groups(trainables, 0.1, -1),
                          find_rule(rule).make({.weight_decay = 0.1}), storage);
      optimizer.zero_gradients();
      optimizer.refresh_copies(dtype);
      expect_shadows(trainables, dtype, 1.7);
      const at::Tensor before = trainables[0].shadow->kept(dtype).clone();
      for (const Trainable& trainable : trainables) trainable.tensor.grad().fill_(1);
      take(optimizer, 1);
      expect_shadows(trainables, dtype, 1.7);
      EXPECT_FALSE(at::equal(trainables[0].shadow->kept(dtype), before));
      const at::Tensor place = trainables[0].shadow->kept(dtype);
      optimizer.refresh_copies(dtype);
      EXPECT_TRUE(trainables[0].shadow->kept(dtype).is_same(place))
          << "a graph would read another place";

      trainables[1].tensor.grad()[0][0] =
          std::numeric_limits<float>::infinity();  // an update that changes nothing
      const at::Tensor shadow = trainables[1].shadow->kept(dtype).clone();
      optimizer.step(1, check_gradients(optimizer.gradients(), 1, 0, {}));
      optimizer.commit(false);
      EXPECT_TRUE(at::equal(trainables[1].shadow->kept(dtype), shadow));
      expect_shadows(trainables, dtype, 1.7);
    }
  }
}

TEST(AdamW, WhatElseWritesAMasterLeavesNoStaleShadow) {
  const std::vector<Trainable> trainables = shadowed(2);
  Optimizer optimizer(trainables, param_groups(trainables, 0.1, -1), make_adamw({}));
  optimizer.zero_gradients();
  optimizer.refresh_copies(at::kBFloat16);
  const at::NoGradGuard no_grad;
  at::Tensor(trainables[0].tensor).fill_(3);  // a checkpoint, a test, or similar
  EXPECT_FALSE(trainables[0].shadow->kept(at::kBFloat16).defined());
  EXPECT_TRUE(at::equal(trainables[0].shadow->value(at::kBFloat16),
                        at::full({3, 8}, 6.0f).to(at::kBFloat16)));
  trainables[0].tensor.grad().fill_(
      std::numeric_limits<float>::infinity());  // the update does not write it
  optimizer.step(1, check_gradients(optimizer.gradients(), 1, 0, {}));
  optimizer.commit(false);
  expect_shadows(trainables, at::kBFloat16, 2);
  at::Tensor(trainables[1].tensor).fill_(5);
  optimizer.refresh_copies(at::kBFloat16);
  expect_shadows(trainables, at::kBFloat16, 2);
  optimizer.refresh_copies(at::kFloat);  // the recovery
  for (const Trainable& trainable : trainables) EXPECT_FALSE(trainable.shadow->place().defined());
}

TEST(AdamW, LoraPlusGivesEveryBItsOwnRate) {
  std::vector<Trainable> trainables;
  for (const char* scope : {"llm", "projector"}) {
    for (const char* part : {".lora_A.weight", ".lora_B.weight", ".lora_magnitude_vector"})
      trainables.push_back({std::string(scope) + part, scope, at::ones({2}).requires_grad_()});
  }
  const auto text = [](const std::vector<ParamGroup>& groups) {
    std::string out;
    for (const ParamGroup& group : groups) {
      out += group.name + " " + std::to_string(group.lr).substr(0, 3) + ":";
      for (const size_t member : group.members) out += " " + std::to_string(member);
      out += "; ";
    }
    return out;
  };
  EXPECT_EQ(text(param_groups(trainables, 0.1, -1, 1)), "base 0.1: 0 1 2 3 4 5; ");
  EXPECT_EQ(text(param_groups(trainables, 0.1, -1, 4)), "base 0.1: 0 2 3 5; base B 0.4: 1 4; ");
  EXPECT_EQ(text(param_groups(trainables, 0.1, 0.2, 4)),
            "base 0.1: 0 2; projector 0.2: 3 5; base B 0.4: 1; projector B 0.8: 4; ");
  trainables.push_back({"vision.lora_B.weight", "vision", at::ones({2}).requires_grad_()});
  EXPECT_EQ(text(param_groups(trainables, 0.1, 0.2, 1, 0.3)),
            "base 0.1: 0 1 2; projector 0.2: 3 4 5; vision 0.3: 6; ");
  EXPECT_EQ(text(param_groups(trainables, 0.1, -1, 2, 0.3)),
            "base 0.1: 0 2 3 5; base B 0.2: 1 4; vision B 0.6: 6; ");
  EXPECT_EQ(text(param_groups({trainables[1]}, 0.1, -1, 4)), "base 0.1:; base B 0.4: 0; ")
      << "the base group is the first, whatever is in it";
  trainables.push_back({"llm.lora_B.bias", "llm", at::ones({2}).requires_grad_()});
  EXPECT_EQ(text(param_groups(trainables, 0.1, -1, 1, -1)), "base 0.1: 0 1 2 3 4 5 6 7; ");
  const std::vector<ParamGroup> groups = param_groups(trainables, 0.1, -1, 4);
  EXPECT_EQ(text(groups), "base 0.1: 0 2 3 5; base B 0.4: 1 4 6; base B bias 0.4: 7; ");
  EXPECT_TRUE(groups[1].decays);
  EXPECT_FALSE(groups[2].decays) << "as PEFT's groupB_no_decay";
}

TEST(AdamW, OneGroupUnlessTheProjectorHasItsOwnRate) {
  const std::vector<Trainable> trainables = two_tensors();
  EXPECT_EQ(param_groups(trainables, 0.1, -1).size(), 1u);
  EXPECT_EQ(param_groups(trainables, 0.1, 0.1).size(), 1u);
  const std::vector<ParamGroup> groups = param_groups(trainables, 0.1, 0);
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_EQ(groups[1].lr, 0);
  EXPECT_EQ(groups[1].members, std::vector<size_t>{1});
}

}  // namespace
}  // namespace lft::optimizer_test
