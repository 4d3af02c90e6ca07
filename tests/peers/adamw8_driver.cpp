// Drives the real 8-bit AdamW for test_adamw8.py: peer_driver adamw8 IN OUT. IN contains per case
// K: param.K, grad.K, rates.K (float32: lr, beta1, beta2, eps, weight_decay, t, which must be exact
// in float32) and, for t > 1, the state before: exp_avg.K, exp_avg_sq.K (uint8), exp_avg_absmax.K,
// exp_avg_sq_absmax.K. OUT receives param.K and the state after that one update, and values.signed,
// values.unsigned.
#include <ATen/Functions.h>

#include "kernels/adamw8/adamw8.h"
#include "peers/optimizer_driver.h"
#include "src/train/optim/adamw8bit.h"

namespace lft::test {
namespace {

using namespace lft::train;

void update(OptimizerCase& one, const Tensors& in, Tensors& out) {
  Slot& slot = one.optimizer.slots()[0];
  slot.steps = static_cast<int64_t>(one.rates[5]) - 1;
  for (const auto& [name, tensor] : moment_tensors(slot)) {
    if (const auto found = in.find(name); found != in.end()) tensor.copy_(found->second);
  }
  one.param.mutable_grad() = in.at("grad." + one.key);
  one.update(0);
  out["param." + one.key] = one.param.detach();
  for (const auto& [name, tensor] : moment_tensors(slot)) out[name] = tensor;
}

at::Tensor values(const CodeMap& map) {
  return at::from_blob(const_cast<float*>(map.value), {256}, at::kFloat).clone();
}

}  // namespace

Tensors drive_adamw8(const Tensors& in) {
  const auto rule = [](const std::string&, const RuleOptions& options) {
    return make_adamw8bit(options);
  };
  Tensors out = drive_cases(in, rule, update);
  out["values.signed"] = values(code_maps().exp_avg);
  out["values.unsigned"] = values(code_maps().exp_avg_sq);
  return out;
}

}  // namespace lft::test
