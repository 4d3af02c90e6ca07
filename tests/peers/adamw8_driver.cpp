// Drives the real 8-bit AdamW for test_adamw8.py: adamw8_driver IN OUT. IN holds for each case K:
// param.K, grad.K, rates.K (float32: lr, beta1, beta2, eps, weight_decay, t, which float32 holds
// exactly or the case is another one) and, for t > 1, the state before: exp_avg.K, exp_avg_sq.K
// (uint8), exp_avg_absmax.K, exp_avg_sq_absmax.K. OUT gets param.K and the state after that one
// update, and values.signed, values.unsigned.
#include <ATen/Functions.h>
#include <torch/csrc/autograd/variable.h>

#include <cstdio>
#include <map>
#include <string>

#include "kernels/adamw8/adamw8.h"
#include "src/base/errors.h"
#include "src/hf/weights.h"
#include "src/train/optim/adamw8bit.h"
#include "src/train/optim/optimizer.h"

using namespace lft::hf;
using namespace lft::io;
using namespace lft::lora;
using namespace lft::ops;
using namespace lft::train;

namespace {

using Tensors = std::map<std::string, at::Tensor>;

Tensors read(const char* path) {
  const lft::io::SafetensorsFile file(path);
  Tensors tensors;
  for (const auto& [name, info] : file.tensors()) tensors[name] = lft::hf::read_tensor(file, info);
  return tensors;
}

void update(const Tensors& in, const std::string& key, Tensors& out) {
  const float* const rates = in.at("rates." + key).const_data_ptr<float>();
  const at::Tensor param = in.at("param." + key).clone().requires_grad_();
  const std::vector<lft::lora::Trainable> trainables = {{key, "llm", param}};
  lft::train::Optimizer optimizer(
      trainables, lft::train::param_groups(trainables, rates[0], -1),
      make_adamw8bit({.betas = {rates[1], rates[2]}, .eps = rates[3], .weight_decay = rates[4]}));
  lft::train::Slot& slot = optimizer.slots()[0];
  slot.steps = static_cast<int64_t>(rates[5]) - 1;
  for (const auto& [name, tensor] : lft::train::moment_tensors(slot)) {
    if (const auto found = in.find(name); found != in.end()) tensor.copy_(found->second);
  }
  param.mutable_grad() = in.at("grad." + key);
  const lft::ops::GradVerdict verdict = lft::ops::check_gradients(optimizer.gradients(), 1, 0, {});
  optimizer.step(1, verdict);
  optimizer.commit(!lft::ops::read_stats(verdict).found_inf);
  out["param." + key] = param.detach();
  for (const auto& [name, tensor] : lft::train::moment_tensors(slot)) out[name] = tensor;
}

at::Tensor values(const lft::CodeMap& map) {
  return at::from_blob(const_cast<float*>(map.value), {256}, at::kFloat).clone();
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 3) return 2;
  try {
    const Tensors in = read(arguments[1]);
    Tensors out = {{"values.signed", values(lft::code_maps().exp_avg)},
                   {"values.unsigned", values(lft::code_maps().exp_avg_sq)}};
    for (const auto& [name, tensor] : in) {
      if (name.rfind("rates.", 0) == 0) update(in, name.substr(6), out);
    }
    lft::hf::write_tensors(arguments[2], out);
  } catch (const lft::Error& error) {
    std::fprintf(stderr, "%s\n", lft::format_error(error).c_str());
    return 1;
  }
}
