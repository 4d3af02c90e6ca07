// Drives a rule of optim.name for test_muon.py: peer_driver rule IN OUT. A case K is "<rule>-...":
// IN contains param.K, grad.K.T of the steps T = 1, 2, ... that have a gradient, and rates.K
// (float32: lr, beta1, beta2, eps, weight_decay, largest norm, steps). OUT receives param.K.T of
// every step and each moment of the last one, <moment>.K.
#include "peers/optimizer_driver.h"
#include "src/train/optim/rules.h"

namespace lft::test {
namespace {

using namespace lft::train;

void drive(OptimizerCase& one, const Tensors& in, Tensors& out) {
  for (int64_t step = 1; step <= static_cast<int64_t>(one.rates[6]); ++step) {
    const std::string at = one.key + "." + std::to_string(step);
    const auto grad = in.find("grad." + at);
    one.param.mutable_grad() = grad == in.end() ? at::Tensor() : grad->second;
    one.update(one.rates[5]);
    out["param." + at] = one.param.detach().clone();
  }
  for (const auto& [name, tensor] : moment_tensors(one.optimizer.slots()[0])) out[name] = tensor;
}

}  // namespace

Tensors drive_rule(const Tensors& in) {
  const auto rule = [](const std::string& key, const RuleOptions& options) {
    return find_rule(key.substr(0, key.find('-'))).make(options);
  };
  return drive_cases(in, rule, drive);
}

}  // namespace lft::test
