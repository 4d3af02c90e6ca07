// Drives LossScaler through sequences of steps for test_scaler.py: peer_driver scaler. Standard
// input: lines "init growth backoff interval flags", with a 1 in `flags` for each step whose
// gradient is infinite. Standard output: after each step "scale tracker taken", where taken is the
// optimizer's count of updates; for an lft::Error "error kind", which ends that line's sequence;
// after each line "end".
#include <ATen/Functions.h>
#include <torch/csrc/autograd/variable.h>

#include <cstdio>
#include <iostream>
#include <limits>
#include <string>

#include "kernels/common/error.h"
#include "peers/driver.h"
#include "src/train/optim/adamw.h"
#include "src/train/optim/loss_scaler.h"

namespace lft::test {
namespace {

using namespace lft::train;

void take_steps(const LossScale& start, const std::string& flags) {
  const at::Tensor parameter = at::ones({1}).requires_grad_();
  const std::vector<lora::Trainable> trainables = {{"weight", "llm", parameter}};
  Optimizer optimizer(trainables, param_groups(trainables, 1e-3, -1), make_adamw({}));
  LossScaler scaler(start);
  const at::Tensor checked_loss = at::ones({});
  for (const char flag : flags) {
    optimizer.drop_gradients();
    scaler.scale(parameter.sum()).backward();
    if (flag == '1') parameter.mutable_grad().fill_(std::numeric_limits<float>::infinity());
    scaler.unscale(optimizer, checked_loss, 1.0);
    scaler.step(optimizer, 1.0);
    scaler.update();
    printf("%.17g %lld %lld\n", scaler.state().scale,
           static_cast<long long>(scaler.state().growth_tracker),
           static_cast<long long>(optimizer.slots()[0].steps));
  }
}

}  // namespace

void drive_scaler() {
  LossScale start;
  std::string flags;
  while (std::cin >> start.scale >> start.growth_factor >> start.backoff_factor >>
         start.growth_interval >> flags) {
    try {
      take_steps(start, flags);
    } catch (const Error& error) {
      printf("error %d\n", static_cast<int>(error.kind()));
    }
    puts("end");
  }
}

}  // namespace lft::test
