// Every cause of torch's "No inf checks were recorded for this optimizer", and lft's message
// instead. One test per cause.
#include <ATen/core/grad_mode.h>
#include <c10/core/InferenceMode.h>

#include "train/scaler_toy.h"

namespace lft::loss_scaler_misuse_test {
using namespace lft::lora;
using namespace lft::train;
namespace {

using namespace test;

/// The statement is refused as an internal error, with these words among others.
#define EXPECT_MISUSE(piece, ...) EXPECT_LFT_ERROR(ErrorKind::kInternal, piece, __VA_ARGS__)

class ScalerMisuse : public test::Scaler {};

void freeze(const std::vector<Trainable>& parameters) {
  for (const Trainable& parameter : parameters) parameter.tensor.set_requires_grad(false);
}

TEST_F(ScalerMisuse, WrongOptimizerIsStepped) {
  backward(parameters);
  scaler.unscale(*optimizer, loss, 0);
  EXPECT_MISUSE("step() on another optimizer than the one that was unscaled",
                scaler.step(*other, 1));
  EXPECT_MISUSE("state READY, optimizer of 2 parameters: projector.lora_A.weight",
                scaler.step(*other, 1));
  EXPECT_MISUSE(std::string("unscaled was the ") + kNames, scaler.step(*other, 1));
  EXPECT_MISUSE("gradients here on no parameter", scaler.step(*other, 1));
}

TEST_F(ScalerMisuse, WrongOptimizerIsUnscaled) {
  const std::string owner =
      "another optimizer owns those that have one, 2 parameters: q_proj.lora_A.weight, "
      "q_proj.lora_B.weight";
  backward(parameters);
  scaler.unscale(*optimizer, loss, 0);
  EXPECT_MISUSE("the gradients are on another optimizer's parameters",
                scaler.unscale(*other, loss, 0));
  EXPECT_MISUSE(owner, scaler.unscale(*other, loss, 0));
  scaler.step(*optimizer, 1);
  scaler.update();
  optimizer->drop_gradients();
  backward(parameters);  // a later step, in which the right one was not even unscaled
  EXPECT_MISUSE(owner, scaler.unscale(*other, loss, 0));
}

TEST_F(ScalerMisuse, EveryParameterIsFrozen) {
  freeze(parameters);
  backward(others);  // the loss has a graph, but not to these
  EXPECT_MISUSE("every parameter of the optimizer is frozen", scaler.unscale(*optimizer, loss, 0));
  EXPECT_MISUSE(
      "requires_grad is off, so no gradient arrives, on 2 parameters: "
      "q_proj.lora_A.weight, q_proj.lora_B",
      scaler.unscale(*optimizer, loss, 0));
  EXPECT_MISUSE("an adapter loaded with \"inference_mode\": true",
                scaler.unscale(*optimizer, loss, 0));
  // With nothing else to train the loss has no graph.
  EXPECT_MISUSE("the loss is detached", scaler.scale(loss_of(parameters)));
  EXPECT_MISUSE("an adapter loaded with \"inference_mode\": true",
                scaler.scale(loss_of(parameters)));
}

TEST_F(ScalerMisuse, FrozenInMidRunIsNamed) {
  whole_step();
  freeze(parameters);
  EXPECT_MISUSE("requires_grad is off on 2 parameters: q_proj.lora_A.weight, q_proj.lora_B.weight",
                scaler.scale(loss_of(parameters)));
}

TEST_F(ScalerMisuse, PartlyFrozenTellsBoth) {
  parameters[0].tensor.set_requires_grad(false);
  backward(others);
  EXPECT_MISUSE(
      "no gradient on 1 parameter: q_proj.lora_B.weight; frozen, requires_grad is "
      "off, 1 parameter: q_proj.lora_A",
      scaler.unscale(*optimizer, loss, 0));
}

TEST_F(ScalerMisuse, BackwardWasSkippedWithTheWholeForward) {
  EXPECT_MISUSE("the backward pass was not run: no loss was scaled",
                scaler.unscale(*optimizer, loss, 0));
  whole_step();
  optimizer->drop_gradients();
  EXPECT_MISUSE("the backward pass was not run: no loss was scaled",
                scaler.unscale(*optimizer, loss, 0));
  EXPECT_MISUSE("no gradient on 2 parameters: q_proj.lora_A.weight",
                scaler.unscale(*optimizer, loss, 0));
}

TEST_F(ScalerMisuse, BackwardWasNotRunOnTheScaledLoss) {
  at::Tensor scaled = scaler.scale(loss_of(parameters));
  EXPECT_MISUSE("backward() was not run on the scaled loss", scaler.unscale(*optimizer, loss, 0));
  EXPECT_MISUSE("reaches 2 parameters: q_proj.lora_A.weight", scaler.unscale(*optimizer, loss, 0));
  scaled = at::Tensor();  // without the graph two causes remain
  EXPECT_MISUSE("the loss did not reach the optimizer's parameters, or backward() was not run",
                scaler.unscale(*optimizer, loss, 0));
}

TEST_F(ScalerMisuse, LossDidNotReachTheOptimizer) {
  backward(others);
  EXPECT_MISUSE("the loss did not reach the optimizer's parameters",
                scaler.unscale(*optimizer, loss, 0));
  EXPECT_MISUSE("losses scaled since the last update: 1", scaler.unscale(*optimizer, loss, 0));
}

TEST_F(ScalerMisuse, BackwardOnTheUnscaledLoss) {
  loss_of(parameters).backward();
  EXPECT_MISUSE("the gradients are not scaled", scaler.unscale(*optimizer, loss, 0));
  EXPECT_MISUSE(std::string("state READY, ") + kNames, scaler.unscale(*optimizer, loss, 0));
  EXPECT_TRUE(at::equal(parameters[0].tensor.grad(), parameters[0].tensor.detach()));
}

TEST_F(ScalerMisuse, OptimizerRebuiltBesideTheModel) {
  whole_step();
  std::vector<Trainable> copies = parameters;
  for (Trainable& copy : copies) copy.tensor = copy.tensor.detach().clone().requires_grad_();
  optimizer->drop_gradients();
  const auto rebuilt = optimizer_of(copies);
  backward(parameters);
  EXPECT_MISUSE("the optimizer was rebuilt on tensors that the model does not use",
                scaler.unscale(*rebuilt, loss, 0));
  EXPECT_MISUSE("those of an earlier optimizer, 2 parameters: q_proj.lora_A.weight",
                scaler.unscale(*rebuilt, loss, 0));
  optimizer.reset();  // also after the earlier one is freed
  EXPECT_MISUSE("the optimizer was rebuilt on tensors that the model does not use",
                scaler.unscale(*rebuilt, loss, 0));
}

TEST_F(ScalerMisuse, ModelRebuiltBesideTheOptimizer) {
  whole_step();
  optimizer->drop_gradients();
  std::vector<Trainable> cast = parameters;
  for (Trainable& parameter : cast)
    parameter.tensor = parameter.tensor.detach().to(at::kBFloat16).requires_grad_();
  const at::Tensor scaled = scaler.scale(loss_of(cast));
  scaled.backward();
  EXPECT_MISUSE("the loss depends on other tensors than the optimizer's",
                scaler.unscale(*optimizer, loss, 0));
  EXPECT_MISUSE("the graph of the loss ends in 2 other tensors, of shape [",
                scaler.unscale(*optimizer, loss, 0));
}

TEST_F(ScalerMisuse, OptimizerRebuiltBetweenUnscaleAndStep) {
  backward(parameters);
  scaler.unscale(*optimizer, loss, 0);
  const auto rebuilt = optimizer_of(parameters);
  EXPECT_MISUSE("the optimizer was rebuilt between unscale() and step()", scaler.step(*rebuilt, 1));
}

TEST_F(ScalerMisuse, GradientsDroppedBetweenUnscaleAndStep) {
  backward(parameters);
  scaler.unscale(*optimizer, loss, 0);
  parameters[1].tensor.mutable_grad() = at::Tensor();
  EXPECT_MISUSE("gradients came or went between unscale() and step()", scaler.step(*optimizer, 1));
  EXPECT_MISUSE("changed are 1 parameter: q_proj.lora_B.weight", scaler.step(*optimizer, 1));
}

TEST_F(ScalerMisuse, OptimizerWithoutParameters) {
  const auto none = optimizer_of({});
  backward(parameters);
  EXPECT_MISUSE("the optimizer has no parameters", scaler.unscale(*none, loss, 0));
}

TEST_F(ScalerMisuse, EmptyBatch) {
  EXPECT_MISUSE("the batch is empty: there is no loss", scaler.scale(at::Tensor()));
  EXPECT_MISUSE("an undefined loss", scaler.scale(at::Tensor()));
  const at::Tensor empty = parameters[0].tensor.slice(0, 0, 0);
  EXPECT_MISUSE("the batch is empty: there is no loss", scaler.scale(empty));
  EXPECT_MISUSE("a loss of shape [0]", scaler.scale(empty));
  backward(parameters);
  EXPECT_MISUSE("the batch is empty: there is no loss",
                scaler.unscale(*optimizer, at::Tensor(), 0));
}

TEST_F(ScalerMisuse, LossIsNoScalar) {
  EXPECT_MISUSE("the loss is not a scalar", scaler.scale(parameters[0].tensor * 2));
  EXPECT_MISUSE("a loss of shape [3]", scaler.scale(parameters[0].tensor * 2));
  backward(parameters);
  EXPECT_MISUSE("the loss is not a scalar", scaler.unscale(*optimizer, at::ones({2}), 0));
}

TEST_F(ScalerMisuse, ForwardUnderNoGrad) {
  at::Tensor without;
  {
    at::NoGradGuard no_grad;
    without = loss_of(parameters);
    EXPECT_MISUSE("the step runs under no-grad or inference mode", scaler.scale(without));
    EXPECT_MISUSE("grad mode is off, the loss has no graph", scaler.scale(without));
  }
  EXPECT_MISUSE("the loss is detached from the model", scaler.scale(without));
  EXPECT_MISUSE("the forward pass ran under no-grad", scaler.scale(without));
  const at::Tensor with = loss_of(parameters);
  at::NoGradGuard no_grad;
  EXPECT_MISUSE("grad mode is off, the loss has a graph", scaler.scale(with));
}

TEST_F(ScalerMisuse, ForwardInInferenceMode) {
  at::Tensor without;
  {
    c10::InferenceMode inference;
    without = loss_of(parameters);
    EXPECT_MISUSE("the forward pass ran in inference mode", scaler.scale(without));
  }
  EXPECT_MISUSE("the forward pass ran in inference mode", scaler.scale(without));
  EXPECT_MISUSE("outside every InferenceMode scope", scaler.scale(without));
  const at::Tensor with = loss_of(parameters);
  c10::InferenceMode inference;
  EXPECT_MISUSE("inference mode is on, the loss has a graph", scaler.scale(with));
}

TEST_F(ScalerMisuse, DetachedLoss) {
  EXPECT_MISUSE("the loss is detached from the model", scaler.scale(loss_of(parameters).detach()));
  EXPECT_MISUSE("the loss requires a gradient itself and has no graph",
                scaler.scale(loss_of(parameters).detach().requires_grad_()));
}

TEST_F(ScalerMisuse, TwoOptimizersInAnyOrder) {
  for (int i = 0; i < 2; ++i) {
    optimizer->drop_gradients();
    other->drop_gradients();
    backward(parameters);
    scaler.unscale(*optimizer, loss, 0);
    scaler.step(*optimizer, 1);
    backward(others);
    scaler.unscale(*other, loss, 0);
    EXPECT_MISUSE("unscale() after step()", scaler.unscale(*optimizer, loss, 0));
    scaler.step(*other, 1);
    scaler.update();
  }
  EXPECT_EQ(optimizer->slots()[0].steps, 2);
  EXPECT_EQ(other->slots()[0].steps, 2);
}

TEST_F(ScalerMisuse, KeepsNoTensorAndNoGraphAlive) {
  using Weak = c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;
  at::Tensor saved = at::ones({3});
  const Weak activation(saved.getIntrusivePtr()), weight(parameters[0].tensor.getIntrusivePtr());
  whole_step();
  scaler.scale((parameters[0].tensor * saved).sum());
  saved = at::Tensor();
  EXPECT_TRUE(activation.expired());
  optimizer.reset();
  parameters.clear();
  EXPECT_TRUE(weight.expired());
}

TEST_F(ScalerMisuse, RemembersEachOptimizerOnceAndForgetsTheDead) {
  ScalerEvidence seen;
  for (int i = 0; i < 3; ++i) {
    seen.saw_gradients(*optimizer);
    seen.saw_gradients(*other);
  }
  EXPECT_EQ(seen.optimizers().size(), 2u);
  optimizer.reset();
  parameters = adapter("k_proj");
  seen.saw_gradients(*optimizer_of(parameters));
  ASSERT_EQ(seen.optimizers().size(), 2u);
  EXPECT_EQ(seen.optimizers()[0][0].name, "projector.lora_A.weight");
  EXPECT_EQ(seen.optimizers()[1][0].name, "k_proj.lora_A.weight");
}

}  // namespace
}  // namespace lft::loss_scaler_misuse_test
