// step_bench RECIPE STEPS: median time of a whole step and of its safety checks
// (unscale, finite check, norms, clip, loss scaler), as one JSON line. host_us: host time of check
// and update, and of binding and clearing gradients and refreshing low-precision copies, with
// LLaVA-1.5-7B's 448 tensors, which are tiny here, so that only overhead remains; on a GPU it is
// the launch time.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>

#include "src/base/errors.h"
#include "src/train/optim/adamw.h"
#include "src/train/run/run.h"

namespace lft {
using namespace lft::data;
using namespace lft::lora;
using namespace lft::ops;
using namespace lft::recipe;
using namespace lft::train;
namespace {

double seconds(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<int64_t>(values.size()) / 2,
                   values.end());
  return values[values.size() / 2];
}

double host_microseconds() {
  std::vector<Trainable> trainables;
  for (int i = 0; i < 448; ++i) {
    const at::Tensor master = at::ones({16, 1}).set_requires_grad(true);
    trainables.push_back(
        {"lora." + std::to_string(i), "llm", master, c10::make_intrusive<Shadow>(master, 2.0)});
  }
  Optimizer optimizer(trainables, param_groups(trainables, 1e-4, 1e-4), make_adamw({}));
  LossScaler scaler({.enabled = false});
  std::vector<double> spent;
  for (int i = 0; i < 200; ++i) {
    auto start = std::chrono::steady_clock::now();
    optimizer.zero_gradients();
    optimizer.refresh_copies(at::kBFloat16);
    double step_s = seconds(start);
    for (Slot& slot : optimizer.slots()) slot.param.tensor.mutable_grad().fill_(1);
    const at::Tensor loss = trainables[0].tensor.sum();
    scaler.scale(loss);
    start = std::chrono::steady_clock::now();
    scaler.unscale(optimizer, loss, 1);
    scaler.step(optimizer, 1);
    scaler.update();
    optimizer.forget_gradients();
    step_s += seconds(start);
    spent.push_back(1e6 * step_s);
  }
  return median(spent);
}

int bench(const char* recipe_path, int64_t steps) {
  Run run = make_run(open_inputs(read_recipe(recipe_path)));
  const Recipe& recipe = run.inputs.recipe;
  const std::unique_ptr<Loader> loader = start_loader(run.inputs, 0);
  std::vector<at::Tensor> gradients;
  const StepOptions options{.clip_grad_norm = recipe.optim.clip_grad_norm,
                            .seed = static_cast<uint64_t>(recipe.train.seed),
                            .gradients_ready = [&](int64_t, Optimizer& optimizer) {
                              gradients = optimizer.gradients();
                              for (at::Tensor& gradient : gradients) {
                                if (gradient.defined()) gradient = gradient.clone();
                              }
                            }};
  std::vector<double> step_s, safety_s;
  for (int64_t i = 0; i < steps; ++i) {
    const auto start = std::chrono::steady_clock::now();
    train_step({run.model.model, run.optimizer, run.scaler, run.schedule}, options, loader->next(),
               run.state);
    step_s.push_back(seconds(start));
  }
  // The gradients of the last step again, as in an FP16 step: unscaled in place, checked,
  // measured, and the scale updated.
  LossScaler scaler({.scale = 1024});
  for (int i = 0; i < 200; ++i) {
    for (size_t slot = 0; slot < gradients.size(); ++slot) {
      if (!gradients[slot].defined()) continue;
      gradients[slot].mul_(1024);
      run.optimizer.slots()[slot].param.tensor.mutable_grad() = gradients[slot];
    }
    const at::Tensor loss = run.optimizer.slots()[0].param.tensor.sum() * 0;
    scaler.scale(loss);
    const auto start = std::chrono::steady_clock::now();
    scaler.unscale(run.optimizer, loss, recipe.optim.clip_grad_norm);
    double spent = seconds(start);
    scaler.step(run.optimizer, 0);
    const auto again = std::chrono::steady_clock::now();
    scaler.update();
    spent += seconds(again);
    safety_s.push_back(spent);
  }
  int64_t elements = 0;
  for (const at::Tensor& gradient : gradients)
    elements += gradient.defined() ? gradient.numel() : 0;
  std::printf(
      "{\"steps\": %lld, \"gradient_elements\": %lld, \"step_s\": %.6f, \"safety_s\": %.6f, "
      "\"share\": %.5f, \"host_us\": %.1f}\n",
      static_cast<long long>(steps), static_cast<long long>(elements), median(step_s),
      median(safety_s), median(safety_s) / median(step_s), host_microseconds());
  return 0;
}

}  // namespace
}  // namespace lft

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  try {
    return lft::bench(argv[1], std::atoll(argv[2]));
  } catch (const lft::Error& error) {
    std::fputs(lft::format_error(error).c_str(), stderr);
    return static_cast<int>(error.kind());
  }
}
