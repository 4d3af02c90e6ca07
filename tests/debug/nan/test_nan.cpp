// Planted faults in a small LLaVA: the hunt names the module, the op and the tensor of each, and
// reports nothing for a healthy step.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "debug/patient.h"
#include "src/debug/nan/nan_hints.h"
#include "support/expect_error.h"

namespace lft::test::nan_test {
using namespace lft::family;
using namespace lft::llava;
using namespace lft::lora;
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity(),
                kNaN = std::numeric_limits<float>::quiet_NaN();

bool has_hint(const MicroHunt& hunt, const std::string& name) {
  return std::any_of(hunt.hints.begin(), hunt.hints.end(),
                     [&](const Hint& hint) { return hint.name == name; });
}

class Healthy : public ::testing::TestWithParam<const char*> {};

TEST_P(Healthy, NothingFires) {
  for (const int64_t recompute : {0, 1}) {
    Patient patient(GetParam(), [](Recipe& recipe) { recipe.train.grad_accum = 2; });
    patient.input.recompute = recompute;
    const Hunt hunt = patient.hunt();
    EXPECT_FALSE(hunt.found()) << report(hunt, patient.input);
    ASSERT_EQ(hunt.micro.size(), 2u);
    for (const MicroHunt& micro : hunt.micro) {
      EXPECT_TRUE(micro.hints.empty());
      EXPECT_FALSE(micro.parting) << report(hunt, patient.input);
      EXPECT_EQ(micro.fp32.has_value(), std::string(GetParam()) != "fp32");
      EXPECT_GT(micro.pass.gradient_norm, 0);
    }
    // The hunt computes the same as training, bit for bit, and leaves no gradient.
    const objective::ForwardContext context{
        .compute = patient.input.compute,
        .dropout = ops::DropoutPosition{.seed = patient.input.seed, .step = 3, .micro_batch = 1},
        .recompute = recompute,
        .normaliser = supervised_tokens(patient.samples.micro[0]) +
                      supervised_tokens(patient.samples.micro[1])};
    const at::Tensor loss = objective::forward_loss(context, patient.model.model,
                                                    patient.samples.make(patient.samples.micro[1]));
    EXPECT_EQ(hunt.micro[1].pass.loss, loss.item<double>());
    for (const Trainable& trainable : patient.model.trainables)
      EXPECT_FALSE(trainable.tensor.grad().defined());
  }
}

INSTANTIATE_TEST_SUITE_P(All, Healthy, ::testing::Values("fp32", "bf16", "fp16"));

TEST(NanHunt, ANanInABaseWeight) {
  Patient patient("fp32");
  const std::string module = kLayers + "1.self_attn.v_proj";
  patient.weight(module + ".weight").view(-1)[5] = kNaN;
  const Hunt hunt = patient.hunt();
  ASSERT_EQ(hunt.given.size(), 1u);
  EXPECT_EQ(hunt.given[0].name, "weight " + module + ".weight");
  EXPECT_EQ(hunt.given[0].text, "1 NaN of 512, the first at flat index 5");
  ASSERT_TRUE(hunt.first() && hunt.first()->pass.forward);
  const BadValue& bad = *hunt.first()->pass.forward;
  EXPECT_EQ(bad.module, module);
  EXPECT_EQ(bad.op, "aten::mm");
  EXPECT_EQ(bad.from, module + ".weight");
  EXPECT_GT(bad.value.nan, 0);
  EXPECT_EQ(bad.value.inf, 0);
}

TEST(NanHunt, ANanInTheHeadAndInANorm) {
  Patient head("bf16");
  head.weight("language_model.lm_head.weight").view(-1)[0] = kNaN;
  Hunt hunt = head.hunt();
  EXPECT_EQ(hunt.first()->pass.forward->module, "language_model");
  EXPECT_EQ(hunt.first()->pass.forward->from, "language_model.lm_head.weight");
  Patient norm("bf16");
  norm.weight(kLayers + "0.input_layernorm.weight")[3] = kNaN;
  hunt = norm.hunt();
  EXPECT_EQ(hunt.first()->pass.forward->module, kLayers + "0.input_layernorm");
  EXPECT_EQ(hunt.first()->pass.forward->from, kLayers + "0.input_layernorm.weight");
}

TEST(NanHunt, AnInfinityInAnAdapterWeight) {
  Patient patient("bf16");
  const std::string module = kLayers + "0.mlp.gate_proj";
  patient.weight(module + ".adapter.lora_B").view(-1)[0] = kInf;
  const Hunt hunt = patient.hunt();
  ASSERT_EQ(hunt.given.size(), 1u);
  EXPECT_EQ(hunt.given[0].name, "weight " + module + ".adapter.lora_B");
  EXPECT_NE(hunt.given[0].text.find("1 inf of"), std::string::npos);
  EXPECT_EQ(hunt.first()->pass.forward->module, module);
  EXPECT_EQ(hunt.first()->pass.forward->from, module + ".adapter.lora_B");
}

class Overflows : public ::testing::TestWithParam<int> {};

TEST_P(Overflows, OfAnActivationUnderFp16InAChosenLayer) {
  Patient patient("fp16");
  const std::string mlp = kLayers + std::to_string(GetParam()) + ".mlp.";
  patient.scale(mlp + "up_proj.weight", 0x1p17);  // the weight itself still fits
  patient.scale(mlp + "down_proj.weight", 0x1p-17);
  const Hunt hunt = patient.hunt();
  EXPECT_TRUE(hunt.given.empty());
  ASSERT_TRUE(hunt.first() && hunt.first()->pass.forward);
  const MicroHunt& micro = *hunt.first();
  const BadValue& bad = *micro.pass.forward;
  EXPECT_EQ(bad.module, mlp + "up_proj");
  EXPECT_EQ(bad.value.dtype, at::kHalf);
  EXPECT_GT(bad.value.inf, 0);
  EXPECT_EQ(bad.value.nan, 0);
  ASSERT_FALSE(bad.inputs.empty());
  for (const NamedFacts& input : bad.inputs) EXPECT_TRUE(input.facts.finite());
  EXPECT_TRUE(has_hint(micro, "overflow of fp16")) << report(hunt, patient.input);
  // FP32 for comparison computes the same function: finite, and different from this module on.
  ASSERT_TRUE(micro.fp32 && micro.parting);
  EXPECT_TRUE(micro.fp32->finite());
  EXPECT_EQ(micro.pass.modules[*micro.parting].module, mlp + "up_proj");
  EXPECT_GT(micro.fp32->modules[*micro.parting].largest, 65504);
  patient.input.compute = at::kBFloat16;  // has the range
  EXPECT_FALSE(patient.hunt().found());
}

INSTANTIATE_TEST_SUITE_P(Layers, Overflows, ::testing::Values(0, 1));

TEST(NanHunt, WhereThePrecisionsPartWithoutAnInfinity) {
  Patient patient("fp16");
  patient.scale(kLayers + "1.mlp.up_proj.weight",
                0x1p-22);  // FP16 has no significant digits for values around 2^-24
  patient.scale(kLayers + "1.mlp.down_proj.weight", 0x1p22);
  patient.input.loss_scale = 1;
  const Hunt hunt = patient.hunt();
  ASSERT_EQ(hunt.micro.size(), 1u);
  ASSERT_TRUE(hunt.micro[0].parting) << report(hunt, patient.input);
  EXPECT_EQ(hunt.micro[0].pass.modules[*hunt.micro[0].parting].module, kLayers + "1.mlp.up_proj");
}

TEST(NanHunt, AWeightThatFp16CannotHold) {
  Patient patient("fp16");
  const std::string name = kLayers + "1.mlp.up_proj.weight";
  patient.scale(name, 0x1p20);
  const Hunt hunt = patient.hunt();
  ASSERT_TRUE(hunt.first() && hunt.first()->pass.forward);
  EXPECT_EQ(hunt.first()->pass.forward->op, "aten::to");
  ASSERT_EQ(hunt.first()->pass.forward->inputs.size(), 1u);
  EXPECT_EQ(hunt.first()->pass.forward->inputs[0].name, name);
  EXPECT_NE(report(hunt, patient.input).find("(" + name + "); fp16 ends at 65504"),
            std::string::npos)
      << report(hunt, patient.input);
}

class BackwardOverflow : public ::testing::TestWithParam<int64_t> {};

TEST_P(BackwardOverflow, UnderALossScaleOnly) {
  Patient patient("fp16");
  patient.input.recompute = GetParam();
  const std::string mlp = kLayers + "1.mlp.";
  patient.scale(mlp + "up_proj.weight", 0x1p-12);
  patient.scale(mlp + "down_proj.weight", 0x1p12);
  patient.input.loss_scale = 65536;
  const Hunt hunt = patient.hunt();
  ASSERT_NE(hunt.first(), nullptr);
  const MicroHunt& micro = *hunt.first();
  EXPECT_FALSE(micro.pass.forward);
  EXPECT_TRUE(std::isfinite(micro.pass.loss));
  ASSERT_TRUE(micro.pass.backward);
  EXPECT_EQ(micro.pass.backward->module, mlp + "down_proj") << report(hunt, patient.input);
  EXPECT_EQ(micro.pass.backward->op, "LinearFunction");
  EXPECT_GT(micro.pass.backward->value.inf, 0);
  for (const NamedFacts& input : micro.pass.backward->inputs) EXPECT_TRUE(input.facts.finite());
  EXPECT_FALSE(micro.pass.gradients.empty());
  EXPECT_TRUE(has_hint(micro, "loss scale too high")) << report(hunt, patient.input);
  patient.input.loss_scale = 1;
  EXPECT_FALSE(patient.hunt().found());
}

INSTANTIATE_TEST_SUITE_P(Recompute, BackwardOverflow, ::testing::Values(0, 1));

TEST(NanHunt, ALossScaleThatOverflowsAtOnceIsNamedAtTheHead) {
  Patient patient("fp16");
  patient.input.loss_scale = 0x1p30;
  const Hunt hunt = patient.hunt();
  ASSERT_NE(hunt.first(), nullptr);
  EXPECT_EQ(hunt.first()->pass.backward->module, "language_model");
  EXPECT_EQ(hunt.first()->pass.backward->op, "TokenLogprobsFunction");
}

class NanPixel : public ::testing::TestWithParam<bool> {};

TEST_P(NanPixel, IsThatOfOneSample) {
  Patient patient("fp32");
  if (GetParam()) {
    data::BatchLayout layout = *patient.input.samples.layout;
    layout.packed = true;
    patient.input.micro[0] = data::make_batch(layout, patient.samples.micro[0]);
  }
  patient.input.micro[0].pixels[2][1][3][3] = kNaN;
  const Hunt hunt = patient.hunt();
  ASSERT_EQ(hunt.given.size(), 1u);
  EXPECT_EQ(hunt.given[0].name,
            "pixels of sample " + patient.samples.micro[0][2].id + " in micro-batch 0");
  EXPECT_NE(hunt.given[0].text.find("1 NaN of 768"), std::string::npos) << hunt.given[0].text;
  EXPECT_EQ(hunt.first()->pass.forward->module,
            "vision_tower.vision_model.embeddings.patch_embedding");
  EXPECT_EQ(hunt.first()->pass.forward->from, "the pixels");
}

INSTANTIATE_TEST_SUITE_P(Packed, NanPixel, ::testing::Bool());

TEST(NanHunt, ALabelAndATokenOutsideTheVocabulary) {
  Patient patient("fp32");
  family::Batch& batch = patient.input.micro[0];
  const int64_t last = (batch.labels_bt[1] != -100).nonzero()[-1][0].item<int64_t>();
  batch.labels_bt[1][last] = 264;
  Hunt hunt = patient.hunt();
  ASSERT_EQ(hunt.given.size(), 1u);
  EXPECT_EQ(hunt.given[0].name, "labels in micro-batch 0");
  EXPECT_EQ(hunt.given[0].text,
            "1 outside [0, 264), the first is 264 at row 1, position " + std::to_string(last));
  EXPECT_TRUE(hunt.found());
  EXPECT_TRUE(hunt.micro.empty());
  batch.labels_bt[1][last] = 5;
  batch.input_ids_bt[0][0] = -7;
  hunt = patient.hunt();
  ASSERT_EQ(hunt.given.size(), 1u);
  EXPECT_EQ(hunt.given[0].name, "token ids in micro-batch 0");
}

TEST(NanHunt, ScoresThatOverflowBeforeTheSoftmax) {
  for (const char* compute : {"fp32", "bf16"}) {
    Patient patient(compute);
    for (const char* name : {"q_proj", "k_proj"})
      patient.scale(kLayers + "0.self_attn." + name + ".weight", 1e20);
    const Hunt hunt = patient.hunt();
    ASSERT_TRUE(hunt.first() && hunt.first()->pass.forward);
    const std::string& op = hunt.first()->pass.forward->op;
    EXPECT_EQ(hunt.first()->pass.forward->module, kLayers + "0.self_attn");
    // On some processors in BF16 it is lft's own op.
    EXPECT_EQ(op.substr(op.find(':')), "::scaled_dot_product_attention");
    if (std::string(compute) == "fp32") {
      EXPECT_EQ(op, "aten::scaled_dot_product_attention");
    }
    EXPECT_TRUE(has_hint(*hunt.first(), "overflow before a softmax"))
        << report(hunt, patient.input);
  }
}

TEST(NanHunt, AnAdapterThatHasRunAwayOverflowsFp32) {
  Patient patient("fp32");
  patient.weight(kLayers + "1.mlp.down_proj.adapter.lora_B").fill_(3e38);
  const Hunt hunt = patient.hunt();
  ASSERT_TRUE(hunt.first() && hunt.first()->pass.forward);
  EXPECT_EQ(hunt.first()->pass.forward->module, kLayers + "1.mlp.down_proj");
  EXPECT_TRUE(has_hint(*hunt.first(), "overflow of fp32")) << report(hunt, patient.input);
}

TEST(NanHunt, WhatFp32CannotHoldEitherIsNotBlamedOnThePrecision) {
  Patient patient("bf16");
  patient.weight(kLayers + "1.mlp.down_proj.adapter.lora_B").fill_(3e38);
  const Hunt hunt = patient.hunt();
  ASSERT_TRUE(hunt.first() && hunt.first()->fp32);
  EXPECT_FALSE(hunt.first()->fp32->finite());
  const std::string text = report(hunt, patient.input);
  EXPECT_NE(text.find("precision is not the cause"), std::string::npos) << text;
  EXPECT_FALSE(has_hint(*hunt.first(), "overflow of bf16")) << text;
}

TEST(NanHunt, RunHintsComeWithNumbersOnly) {
  Recipe recipe;
  recipe.optim.lr = 10;
  recipe.optim.warmup_ratio = 0;
  recipe.optim.clip_grad_norm = 0;
  const NamedTensor weight{"some.lora_B.weight", at::full({2}, 0.5)};
  std::vector<StepFigures> calm, wild;
  for (int64_t step = 1; step <= 6; ++step) {
    calm.push_back(
        {.step = step, .loss = 2.0 - 0.1 * static_cast<double>(step), .lr = 1e-4, .grad_norm = 1});
    wild.push_back({.step = step,
                    .loss = step < 4 ? 2.0 : 40.0,
                    .lr = 10,
                    .grad_norm = step == 5 ? 900.0 : 1.0});
  }
  EXPECT_TRUE(run_hints(recipe, {}, weight).empty());
  EXPECT_TRUE(run_hints(recipe, calm, weight).empty());
  const std::vector<Hint> hints = run_hints(recipe, wild, weight);
  ASSERT_EQ(hints.size(), 2u);
  EXPECT_EQ(hints[0].name, "learning rate too high, without warm-up");
  EXPECT_NE(hints[0].evidence.find("from 2 (step 1) to 40 (mean of the last 3 steps)"),
            std::string::npos)
      << hints[0].evidence;
  EXPECT_EQ(hints[1].name, "no gradient clipping");
  EXPECT_NE(hints[1].evidence.find("reached 900 at step 5, 900 times the median"),
            std::string::npos)
      << hints[1].evidence;
  recipe.optim.clip_grad_norm = 1;
  recipe.optim.warmup_ratio = 0.1;
  ASSERT_EQ(run_hints(recipe, wild, weight).size(), 1u);
  EXPECT_EQ(run_hints(recipe, wild, weight)[0].name, "learning rate too high");
  const NamedTensor far{"some.lora_B.weight", at::full({2}, 40.0)};  // 60 is the sum of the rates
  std::vector<StepFigures> flat = wild;
  for (StepFigures& each : flat) each.loss = 2;
  ASSERT_EQ(run_hints(recipe, flat, far).size(), 1u);
  EXPECT_NE(run_hints(recipe, flat, far)[0].evidence.find(
                "the largest trained weight is 40 (some.lora_B.weight)"),
            std::string::npos);
}

}  // namespace
}  // namespace lft::test::nan_test
