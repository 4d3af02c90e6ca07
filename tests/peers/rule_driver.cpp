// Drives a rule of optim.name for test_muon.py: rule_driver IN OUT. A case K is "<rule>-...": IN
// holds param.K, grad.K.T of the steps T = 1, 2, ... that have a gradient, and rates.K (float32:
// lr, beta1, beta2, eps, weight_decay, largest norm, steps). OUT gets param.K.T of every step and
// each moment of the last one, <moment>.K.
#include <torch/csrc/autograd/variable.h>

#include <cstdio>
#include <map>
#include <string>

#include "src/base/errors.h"
#include "src/hf/weights.h"
#include "src/train/optim/optimizer.h"
#include "src/train/optim/rules.h"

namespace {

using Tensors = std::map<std::string, at::Tensor>;

Tensors read(const char* path) {
  const lft::io::SafetensorsFile file(path);
  Tensors tensors;
  for (const auto& [name, info] : file.tensors()) tensors[name] = lft::hf::read_tensor(file, info);
  return tensors;
}

void drive(const Tensors& in, const std::string& key, Tensors& out) {
  using namespace lft::train;
  const float* const rates = in.at("rates." + key).const_data_ptr<float>();
  const at::Tensor param = in.at("param." + key).clone().requires_grad_();
  const std::vector<lft::lora::Trainable> trainables = {{key, "llm", param}};
  Optimizer optimizer(
      trainables, param_groups(trainables, rates[0], -1),
      find_rule(key.substr(0, key.find('-')))
          .make({.betas = {rates[1], rates[2]}, .eps = rates[3], .weight_decay = rates[4]}));
  for (int64_t step = 1; step <= static_cast<int64_t>(rates[6]); ++step) {
    const std::string at = key + "." + std::to_string(step);
    const auto grad = in.find("grad." + at);
    param.mutable_grad() = grad == in.end() ? at::Tensor() : grad->second;
    const lft::ops::GradVerdict verdict =
        lft::ops::check_gradients(optimizer.gradients(), 1, rates[5], {});
    optimizer.step(1, verdict);
    optimizer.commit(!lft::ops::read_stats(verdict).found_inf);
    out["param." + at] = param.detach().clone();
  }
  for (const auto& [name, tensor] : moment_tensors(optimizer.slots()[0])) out[name] = tensor;
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 3) return 2;
  try {
    const Tensors in = read(arguments[1]);
    Tensors out;
    for (const auto& [name, tensor] : in) {
      if (name.rfind("rates.", 0) == 0) drive(in, name.substr(6), out);
    }
    lft::hf::write_tensors(arguments[2], out);
  } catch (const lft::Error& error) {
    std::fprintf(stderr, "%s\n", lft::format_error(error).c_str());
    return 1;
  }
}
