// The loss scaler: its arithmetic against hand-computed sequences, the state after a skipped
// step, its state machine, what is saved.
#include <cmath>
#include <utility>

#include "train/scaler_toy.h"

namespace lft::loss_scaler_test {
using namespace lft::io;
using namespace lft::lora;
using namespace lft::ops;
using namespace lft::train;
namespace {

using namespace test;

// ---- the scale

/// Scale and tracker after each flag.
void expect_sequence(LossScale state, const std::string& flags, const std::vector<double>& scales,
                     const std::vector<int64_t>& trackers) {
  LossScaler scaler(state);
  const std::vector<Trainable> parameters = adapter("q_proj");
  const auto optimizer = optimizer_of(parameters);
  for (size_t i = 0; i < flags.size(); ++i) {
    optimizer->drop_gradients();
    scaler.scale(parameters[0].tensor.sum())
        .backward();  // gradients of 1, times the scale finite at every scale
    if (flags[i] == '1') parameters[0].tensor.mutable_grad()[0] = kInf;
    scaler.unscale(*optimizer, at::ones({}), 0);
    scaler.step(*optimizer, 0);
    EXPECT_EQ(scaler.update().found_inf, flags[i] == '1');
    EXPECT_EQ(scaler.state().scale, scales[i]) << "step " << i;
    EXPECT_EQ(scaler.state().growth_tracker, trackers[i]) << "step " << i;
  }
}

TEST(LossScale, GrowsAfterAnIntervalOfGoodStepsAndBacksOffAtOnce) {
  expect_sequence({.scale = 8, .growth_interval = 3}, "00010011000",
                  {8, 8, 16, 8, 8, 8, 4, 2, 2, 2, 4}, {1, 2, 0, 0, 1, 2, 0, 0, 1, 2, 0});
}

TEST(LossScale, IsFloat32WithTheProductInDouble) {
  // torch._amp_update_scale_ of torch 2.11 from float32(0.1) times 0.73, 1.1, 0.73, 1.1.
  EXPECT_EQ(LossScaler(LossScale{.scale = 0.1}).state().scale, 0.10000000149011612);
  expect_sequence(
      {.scale = 0.1, .growth_factor = 1.1, .backoff_factor = 0.73, .growth_interval = 1}, "1010",
      {0.0729999989271164, 0.0802999958395958, 0.058618996292352676, 0.06448089331388474},
      {0, 0, 0, 0});
}

TEST(LossScale, ThatWouldGrowToInfinityStays) {
  const double largest = std::ldexp(1.0, 127);
  expect_sequence({.scale = largest, .growth_interval = 1}, "0010",
                  {largest, largest, largest / 2, largest}, {0, 0, 0, 0});
  expect_sequence({.scale = largest, .growth_interval = 2}, "000", {largest, largest, largest},
                  {1, 0, 1});
}

TEST(LossScale, NotEnabledIsOneForEver) {
  expect_sequence({.enabled = false, .scale = 8, .growth_interval = 1}, "0110", {1, 1, 1, 1},
                  {0, 0, 0, 0});
  const at::Tensor loss = loss_of(adapter("q_proj"));
  EXPECT_TRUE(LossScaler(LossScale{.enabled = false}).scale(loss).is_same(loss));
}

TEST_F(Scaler, TooSmallToInvertStops) {
  scaler =
      LossScaler(LossScale{.scale = std::ldexp(1.0, -127)});  // 2^127 is a float32, 2^128 is none
  EXPECT_TRUE(whole_step(kInf).found_inf);
  const std::vector<at::Tensor> before = everything(*optimizer);
  backward(parameters);
  EXPECT_LFT_ERROR(ErrorKind::kNumeric, "2.938735877055719e-39",
                   scaler.unscale(*optimizer, loss, 0));
  expect_bits(before, everything(*optimizer));
}

TEST_F(Scaler, ScalesTheLossAndUnscalesTheGradients) {
  const at::Tensor scaled = scaler.scale(loss_of(parameters));
  EXPECT_EQ(scaled.item<float>(), 1024 * loss_of(parameters).item<float>());
  scaled.backward();
  EXPECT_TRUE(at::equal(parameters[0].tensor.grad(), 1024 * parameters[0].tensor.detach()));
  scaler.unscale(*optimizer, loss, 0);
  for (const Trainable& parameter : parameters)
    EXPECT_TRUE(at::equal(parameter.tensor.grad(), parameter.tensor.detach()));
  scaler.step(*optimizer, 1);
  const GradStats stats = scaler.update();
  EXPECT_DOUBLE_EQ(stats.norms[0], std::sqrt(5.25));
  EXPECT_DOUBLE_EQ(stats.norms[1], std::sqrt(0.625));
  EXPECT_DOUBLE_EQ(stats.norm, std::sqrt(5.875));
  EXPECT_EQ(stats.clip, 1);
  // The first update of Adam moves each weight by lr against the sign of its gradient, up to eps.
  EXPECT_NEAR(parameters[0].tensor[1].item<float>(), -1.9, 1e-6);
  EXPECT_EQ(optimizer->slots()[0].steps, 1);
}

TEST_F(Scaler, ClipsTheUnscaledGradients) {
  backward(parameters);
  scaler.unscale(*optimizer, loss, /*max_norm=*/0.5);
  scaler.step(*optimizer, 1);
  const double clip = 0.5 / (std::sqrt(5.875) + 1e-6);
  EXPECT_NEAR(scaler.update().clip, clip, 1e-7 * clip);
  EXPECT_NEAR(optimizer->slots()[0].moment("exp_avg")[1].item<float>(), 0.1 * -2.0 * clip, 1e-6);
}

TEST_F(Scaler, AHalfPrecisionLossIsScaledInFloat32) {
  const at::Tensor half = loss_of(parameters).to(at::kHalf);
  const at::Tensor scaled = LossScaler(LossScale{}).scale(half);
  EXPECT_EQ(scaled.scalar_type(), at::kFloat);
  EXPECT_EQ(scaled.item<float>(), 65536 * half.item<float>());
}

// ---- skipped steps, and parameters without a gradient

TEST_F(Scaler, ANonFiniteGradientOrLossChangesNoBitOfWeightsMomentsAndCounts) {
  whole_step();
  double scale = 1024;
  for (const float bad : {kInf, -kInf, kNan}) {
    const std::vector<at::Tensor> before = everything(*optimizer);
    const GradStats stats = whole_step(bad);
    EXPECT_TRUE(stats.found_inf);
    EXPECT_EQ(stats.first_bad, 1);
    EXPECT_TRUE(stats.loss_finite);
    expect_bits(before, everything(*optimizer));
    EXPECT_EQ(scaler.state().scale, scale /= 2);
  }
  const std::vector<at::Tensor> before = everything(*optimizer);
  optimizer->drop_gradients();
  backward(parameters);
  scaler.unscale(*optimizer, at::scalar_tensor(kNan), 1);
  scaler.step(*optimizer, 1);
  const GradStats stats = scaler.update();
  EXPECT_TRUE(stats.found_inf);
  EXPECT_FALSE(stats.loss_finite);
  EXPECT_EQ(stats.first_bad, -1);
  expect_bits(before, everything(*optimizer));
  EXPECT_EQ(scaler.state().scale, scale / 2);
  whole_step();
  EXPECT_EQ(optimizer->slots()[1].steps, 2);  // only the good steps count
}

TEST_F(Scaler, SomeAbsentGradientsAreNoMisuse) {
  const std::vector<at::Tensor> before = everything(*optimizer);
  backward({parameters[0]});
  scaler.unscale(*optimizer, loss, 0);
  scaler.step(*optimizer, 1);
  EXPECT_FALSE(scaler.update().found_inf);
  const std::vector<at::Tensor> after = everything(*optimizer);
  for (size_t i = 0; i < 4; ++i) EXPECT_FALSE(at::equal(before[i], after[i])) << i;
  expect_bits({before.begin() + 4, before.end()}, {after.begin() + 4, after.end()});
}

TEST_F(Scaler, OneOfTwoOptimizersSkipsAlone) {
  const std::vector<at::Tensor> skipped = everything(*other), moved = everything(*optimizer);
  backward(parameters);
  backward(others, kInf);
  scaler.unscale(*optimizer, loss, 0);
  scaler.unscale(*other, loss, 0);
  scaler.step(*other, 1);
  scaler.step(*optimizer, 1);
  const GradStats stats = scaler.update();
  expect_bits(skipped, everything(*other));
  EXPECT_FALSE(at::equal(moved[0], parameters[0].tensor));
  EXPECT_EQ(optimizer->slots()[0].steps, 1);
  EXPECT_EQ(other->slots()[0].steps, 0);
  EXPECT_TRUE(stats.found_inf);
  EXPECT_EQ(stats.first_bad, 3);
  ASSERT_EQ(stats.norms.size(), 4u);
  EXPECT_EQ(stats.norms[0], stats.norms[2]);
  EXPECT_EQ(scaler.state().scale, 512);
}

TEST_F(Scaler, TwoOptimizersHaveOneNorm) {
  backward(parameters);
  backward(others);
  scaler.unscale(*optimizer, loss, 0);
  scaler.unscale(*other, loss, 1);
  scaler.step(*optimizer, 1);
  scaler.step(*other, 1);
  const GradStats stats = scaler.update();
  EXPECT_DOUBLE_EQ(stats.norm, std::sqrt(2 * 5.875));
  EXPECT_NEAR(stats.clip, 1 / std::sqrt(5.875), 1e-6);
  EXPECT_EQ(scaler.state().growth_tracker, 1);
}

// ---- the state machine: READY -unscale-> UNSCALED -step-> STEPPED -update-> READY

TEST_F(Scaler, UnscaleTwice) {
  backward(parameters);
  scaler.unscale(*optimizer, loss, 0);
  const at::Tensor gradient = parameters[0].tensor.grad().clone();
  EXPECT_LFT_ERROR(ErrorKind::kInternal, "unscale() was called twice",
                   scaler.unscale(*optimizer, loss, 0));
  EXPECT_LFT_ERROR(ErrorKind::kInternal, std::string("state UNSCALED, ") + kNames,
                   scaler.unscale(*optimizer, loss, 0));
  EXPECT_TRUE(at::equal(gradient, parameters[0].tensor.grad()));
  scaler.step(*optimizer, 1);  // the errors changed nothing: the step continues
  EXPECT_FALSE(scaler.update().found_inf);
}

TEST_F(Scaler, UnscaleAfterStep) {
  backward(parameters);
  scaler.unscale(*optimizer, loss, 0);
  scaler.step(*optimizer, 1);
  EXPECT_LFT_ERROR(ErrorKind::kInternal, "unscale() after step()",
                   scaler.unscale(*optimizer, loss, 0));
  EXPECT_LFT_ERROR(ErrorKind::kInternal, std::string("state STEPPED, ") + kNames,
                   scaler.unscale(*optimizer, loss, 0));
}

TEST_F(Scaler, StepTwice) {
  backward(parameters);
  scaler.unscale(*optimizer, loss, 0);
  scaler.step(*optimizer, 1);
  const std::vector<at::Tensor> after = everything(*optimizer);
  EXPECT_LFT_ERROR(ErrorKind::kInternal, "step() was called twice", scaler.step(*optimizer, 1));
  EXPECT_LFT_ERROR(ErrorKind::kInternal, std::string("state STEPPED, ") + kNames,
                   scaler.step(*optimizer, 1));
  expect_bits(after, everything(*optimizer));
}

TEST_F(Scaler, StepWithoutUnscale) {
  const std::vector<at::Tensor> before = everything(*optimizer);
  backward(parameters);
  EXPECT_LFT_ERROR(ErrorKind::kInternal, "step() without a check", scaler.step(*optimizer, 1));
  EXPECT_LFT_ERROR(ErrorKind::kInternal, std::string("state READY, ") + kNames,
                   scaler.step(*optimizer, 1));
  expect_bits(before, everything(*optimizer));
}

TEST_F(Scaler, UpdateWithNothingChecked) {
  EXPECT_LFT_ERROR(ErrorKind::kInternal, "update() with nothing checked", scaler.update());
  backward(parameters);
  EXPECT_LFT_ERROR(ErrorKind::kInternal, "state READY", scaler.update());
  whole_step();
  EXPECT_LFT_ERROR(ErrorKind::kInternal, "no unscale() since the last update()", scaler.update());
  EXPECT_EQ(scaler.state().growth_tracker, 1);
}

TEST_F(Scaler, UpdateWithoutStepMovesTheScaleOnly) {
  for (const float bad : {0.0f, kInf}) {
    const std::vector<at::Tensor> before = everything(*optimizer);
    optimizer->drop_gradients();
    backward(parameters, bad);
    scaler.unscale(*optimizer, loss, 0);
    EXPECT_EQ(scaler.update().found_inf, bad != 0);
    expect_bits(before, everything(*optimizer));
    EXPECT_EQ(scaler.state().scale, bad == 0 ? 1024 : 512);
    EXPECT_EQ(scaler.state().growth_tracker, bad == 0 ? 1 : 0);
  }
}

TEST_F(Scaler, UpdateMakesEveryOptimizerReady) {
  for (int i = 0; i < 3; ++i) whole_step();
  EXPECT_EQ(optimizer->slots()[0].steps, 3);
  EXPECT_EQ(scaler.state().growth_tracker, 3);
}

TEST_F(Scaler, NotEnabledHoldsToTheSameOrder) {
  scaler = LossScaler(LossScale{.enabled = false});
  EXPECT_LFT_ERROR(ErrorKind::kInternal, "update() with nothing checked", scaler.update());
  EXPECT_LFT_ERROR(ErrorKind::kInternal, "no loss was scaled", scaler.unscale(*optimizer, loss, 0));
  backward(parameters);
  EXPECT_LFT_ERROR(ErrorKind::kInternal, "step() without a check", scaler.step(*optimizer, 1));
  scaler.unscale(*optimizer, loss, 0);
  EXPECT_LFT_ERROR(ErrorKind::kInternal, "unscale() was called twice",
                   scaler.unscale(*optimizer, loss, 0));
  scaler.step(*optimizer, 1);
  EXPECT_LFT_ERROR(ErrorKind::kInternal, "step() was called twice", scaler.step(*optimizer, 1));
  scaler.update();
  EXPECT_LFT_ERROR(ErrorKind::kInternal, "detached", scaler.scale(at::ones({})));
}

// ---- what is saved

Json valid_json() {
  return loss_scale_json({.scale = 512, .growth_interval = 7, .growth_tracker = 3});
}

void expect_same(const LossScale& a, const LossScale& b) {
  EXPECT_EQ(a.enabled, b.enabled);
  EXPECT_EQ(a.scale, b.scale);
  EXPECT_EQ(a.growth_factor, b.growth_factor);
  EXPECT_EQ(a.backoff_factor, b.backoff_factor);
  EXPECT_EQ(a.growth_interval, b.growth_interval);
  EXPECT_EQ(a.growth_tracker, b.growth_tracker);
}

TEST(LossScaleState, RoundTripsThroughText) {
  LossScale state{.scale = static_cast<float>(0.1),
                  .growth_factor = 1.1,
                  .backoff_factor = 1.0 / 3,
                  .growth_interval = 7,
                  .growth_tracker = 3};
  expect_same(loss_scale_from(parse_json(loss_scale_json(state).dump(), "state")), state);
  state.enabled = false;
  expect_same(loss_scale_from(parse_json(loss_scale_json(state).dump(), "state")), state);
}

TEST_F(Scaler, GoesOnFromItsSavedState) {
  const std::string flags = "0100010010000110";
  const LossScale start{
      .scale = 0.7, .growth_factor = 1.9, .backoff_factor = 0.45, .growth_interval = 3};
  scaler = LossScaler(start);
  std::vector<LossScale> straight;
  for (const char flag : flags) {
    whole_step(flag == '1' ? kInf : 0);
    straight.push_back(scaler.state());
  }
  scaler = LossScaler(start);
  for (size_t i = 0; i < flags.size(); ++i) {
    whole_step(flags[i] == '1' ? kInf : 0);
    expect_same(scaler.state(), straight[i]);
    scaler =
        LossScaler(loss_scale_from(parse_json(loss_scale_json(scaler.state()).dump(), "state")));
  }
}

TEST(LossScaleState, FieldsAreThereOnceAndOfTheirKind) {
  const Json valid = valid_json();
  for (const auto& [key, value] : valid.items()) {
    Json json = valid;
    json.erase(key);
    EXPECT_LFT_ERROR(ErrorKind::kCheckpoint, "missing field \"" + key + "\"",
                     loss_scale_from(json));
    json[key] = "1";
    EXPECT_LFT_ERROR(ErrorKind::kCheckpoint, "bad field \"" + key + "\"", loss_scale_from(json));
    json[key] = nullptr;
    EXPECT_LFT_ERROR(ErrorKind::kCheckpoint, "bad field \"" + key + "\"", loss_scale_from(json));
  }
  Json json = valid_json();
  json["growth_interval"] = 2.5;
  EXPECT_LFT_ERROR(ErrorKind::kCheckpoint, "bad field \"growth_interval\"", loss_scale_from(json));
  json = valid_json();
  json["_growth_tracker"] = 0;
  EXPECT_LFT_ERROR(ErrorKind::kCheckpoint, "unknown field \"_growth_tracker\"",
                   loss_scale_from(json));
  EXPECT_LFT_ERROR(ErrorKind::kCheckpoint, "not a JSON object", loss_scale_from(Json::array()));
}

TEST(LossScaleState, FieldsAreInTheirRanges) {
  const std::vector<std::pair<std::string, LossScale>> bad = {
      {"scale is 0.0", {.scale = 0}},
      {"scale is -1.0", {.scale = -1}},
      {"scale is 1e+39", {.scale = 1e39}},
      {"growth_factor is 0.5", {.growth_factor = 0.5}},
      {"backoff_factor is 0.0", {.backoff_factor = 0}},
      {"backoff_factor is 1.0", {.backoff_factor = 1}},
      {"growth_tracker is 7", {.growth_interval = 7, .growth_tracker = 7}}};
  for (const auto& [piece, state] : bad) {
    EXPECT_LFT_ERROR(ErrorKind::kCheckpoint, piece, loss_scale_from(loss_scale_json(state)));
    EXPECT_LFT_ERROR(ErrorKind::kInternal, piece, LossScaler{state});
  }
  EXPECT_LFT_ERROR(ErrorKind::kCheckpoint, "growth_interval",
                   loss_scale_from(loss_scale_json({.growth_interval = 0})));
  EXPECT_LFT_ERROR(ErrorKind::kCheckpoint, "growth_tracker",
                   loss_scale_from(loss_scale_json({.growth_tracker = -1})));
  for (const LossScale& state :
       {LossScale{.scale = kNan}, LossScale{.scale = kInf}, LossScale{.growth_factor = kInf},
        LossScale{.backoff_factor = kNan}, LossScale{.growth_interval = 0},
        LossScale{.growth_tracker = -1}}) {
    EXPECT_LFT_ERROR(ErrorKind::kInternal, "bad loss scale", LossScaler{state});
  }
}

}  // namespace
}  // namespace lft::loss_scaler_test
