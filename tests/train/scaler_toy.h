// Two small adapters, an optimizer for each and a loss scaler.
#pragma once
#include <ATen/Functions.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/variable.h>

#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "src/train/optim/adamw.h"
#include "src/train/optim/loss_scaler.h"
#include "support/expect_error.h"

namespace lft::test {
using namespace lft::lora;
using namespace lft::ops;
using namespace lft::train;

inline constexpr float kInf = std::numeric_limits<float>::infinity();
inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

/// Two parameters "<module>.lora_A.weight" and "<module>.lora_B.weight".
inline std::vector<Trainable> adapter(const std::string& module) {
  return {{module + ".lora_A.weight", "llm", at::tensor({1.0f, -2.0f, 0.5f}).requires_grad_()},
          {module + ".lora_B.weight", "llm", at::tensor({0.25f, -0.75f}).requires_grad_()}};
}

inline std::unique_ptr<Optimizer> optimizer_of(const std::vector<Trainable>& parameters) {
  return std::make_unique<Optimizer>(parameters, param_groups(parameters, 0.1, -1), make_adamw({}));
}

/// Half the sum of squares: the gradient of each element is the element.
inline at::Tensor loss_of(const std::vector<Trainable>& parameters) {
  at::Tensor loss = at::zeros({});
  for (const Trainable& parameter : parameters) loss = loss + parameter.tensor.square().sum() / 2;
  return loss;
}

/// Weights, moments and counts.
inline std::vector<at::Tensor> everything(Optimizer& optimizer) {
  std::vector<at::Tensor> tensors;
  for (const Slot& slot : optimizer.slots()) {
    for (const at::Tensor& tensor :
         {slot.param.tensor, slot.moment("exp_avg"), slot.moment("exp_avg_sq")})
      tensors.push_back(tensor.detach().clone());
    tensors.push_back(at::scalar_tensor(slot.steps, at::kLong));
  }
  return tensors;
}

inline void expect_bits(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(at::equal(a[i], b[i])) << "tensor " << i;
}

/// The name of the fixture's first optimizer in messages.
inline constexpr const char* kNames =
    "optimizer of 2 parameters: q_proj.lora_A.weight, q_proj.lora_B.weight";

class Scaler : public ::testing::Test {
 protected:
  /// Gradients of one backward pass; with `bad`, one element of the last one is `bad`.
  void backward(const std::vector<Trainable>& parameters, float bad = 0) {
    scaler.scale(loss_of(parameters)).backward();
    if (bad != 0) parameters.back().tensor.mutable_grad()[1] = bad;
  }

  GradStats whole_step(float bad = 0) {
    optimizer->drop_gradients();
    backward(parameters, bad);
    scaler.unscale(*optimizer, loss, 0);
    scaler.step(*optimizer, 1);
    return scaler.update();
  }

  std::vector<Trainable> parameters = adapter("q_proj"), others = adapter("projector");
  std::unique_ptr<Optimizer> optimizer = optimizer_of(parameters), other = optimizer_of(others);
  LossScaler scaler{LossScale{.scale = 1024}};
  const at::Tensor loss = at::scalar_tensor(1.5);
};

}  // namespace lft::test
