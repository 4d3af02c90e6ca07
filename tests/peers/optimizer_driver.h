// Shared code of the optimizer drivers: cases K of IN with rates.K and param.K.
#pragma once
#include <torch/csrc/autograd/variable.h>

#include <vector>

#include "models/lora/inject.h"
#include "peers/driver.h"
#include "src/train/optim/optimizer.h"

namespace lft::test {

struct OptimizerCase {
  std::string key;
  const float* rates;
  at::Tensor param;  // a copy, trained by the optimizer
  train::Optimizer optimizer;

  /// With the parameter's gradient; its norm is clipped to `most` unless that is 0.
  void update(double most) {
    const ops::GradVerdict verdict = ops::check_gradients(optimizer.gradients(), 1, most, {});
    optimizer.step(1, verdict);
    optimizer.commit(!ops::read_stats(verdict).found_inf);
  }
};

/// OUT, to which drive(case, in, out) adds the values of a case. Its optimizer has the rule that
/// rule(key, options) returns.
template <class Rule, class Drive>
Tensors drive_cases(const Tensors& in, const Rule& rule, const Drive& drive) {
  Tensors out;
  for (const auto& [name, tensor] : in) {
    if (!name.starts_with("rates.")) continue;
    const std::string key = name.substr(6);
    const float* const rates = static_cast<const float*>(tensor.const_data_ptr());
    const at::Tensor param = in.at("param." + key).clone().requires_grad_();
    const std::vector<lora::Trainable> trainables = {{key, "llm", param}};
    OptimizerCase one{
        key,
        rates,
        param,
        {trainables, train::param_groups(trainables, rates[0], -1),
         rule(key, {.betas = {rates[1], rates[2]}, .eps = rates[3], .weight_decay = rates[4]})}};
    drive(one, in, out);
  }
  return out;
}

}  // namespace lft::test
