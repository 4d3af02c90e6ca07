#include "src/debug/doctor/doctor_step.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <array>
#include <cmath>

#include "models/lora/lora.h"
#include "models/ops/core/precision.h"
#include "src/debug/doctor/doctor.h"
#include "src/io/json.h"
#include "src/train/machine/precision.h"
#include "src/train/optim/adamw.h"
#include "src/train/optim/loss_scaler.h"

namespace lft::debug {
namespace {

constexpr int64_t kRows = 2, kWidth = 8, kRank = 2;
constexpr double kRate = 0x1p-6, kClip = 1, kFirstScale = 65536, kBackoff = 0x1p-12, kEps = 1e-8;
constexpr std::array<double, 2> kBetas = {0.9, 0.999};

/// Row-major.
struct Matrix {
  int64_t rows, cols;
  std::vector<double> values = {};
  double at(int64_t i, int64_t j) const { return values[static_cast<size_t>(i * cols + j)]; }
};

template <class Element>
Matrix filled(int64_t rows, int64_t cols, const Element& element) {
  Matrix m{rows, cols};
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < cols; ++j) m.values.push_back(element(i, j));
  }
  return m;
}

/// -1, 0 and 1. With the salts below every number of the step, including gradients, is exact in
/// BF16.
Matrix pattern(int64_t rows, int64_t cols, int64_t salt) {
  return filled(rows, cols, [&](int64_t i, int64_t j) {
    const int64_t k = (7 * i + 3 * j + salt * i * j + salt) % 5;
    return k == 0 ? 1 : k == 1 ? -1 : 0;
  });
}

Matrix transposed(const Matrix& a) {
  return filled(a.cols, a.rows, [&](int64_t i, int64_t j) { return a.at(j, i); });
}

Matrix product(const Matrix& a, const Matrix& b) {
  return filled(a.rows, b.cols, [&](int64_t i, int64_t j) {
    double sum = 0;
    for (int64_t k = 0; k < a.cols; ++k) sum += a.at(i, k) * b.at(k, j);
    return sum;
  });
}

Matrix sum(Matrix a, const Matrix& b, double factor = 1) {
  for (size_t i = 0; i < a.values.size(); ++i) a.values[i] += factor * b.values[i];
  return a;
}

struct Layer {
  Matrix w_oi, a_ri, b_or;
};
struct Toy {
  Matrix x, target;
  std::array<Layer, 2> layers;
};

Toy make_toy() {
  return {
      .x = pattern(kRows, kWidth, 3),
      .target = pattern(kRows, kWidth, 10),
      .layers = {
          Layer{pattern(kWidth, kWidth, 4), pattern(kRank, kWidth, 5), pattern(kWidth, kRank, 6)},
          Layer{pattern(kWidth, kWidth, 7), pattern(kRank, kWidth, 8), pattern(kWidth, kRank, 9)}}};
}

Matrix forward(const Layer& layer, const Matrix& x) {
  return sum(product(x, transposed(layer.w_oi)),
             product(product(x, transposed(layer.a_ri)), transposed(layer.b_or)));
}

struct StepGradients {
  Matrix x, a, b;
};
StepGradients backward(const Layer& layer, const Matrix& x, const Matrix& dy) {
  const Matrix through = product(dy, layer.b_or);
  return {.x = sum(product(dy, layer.w_oi), product(through, layer.a_ri)),
          .a = product(transposed(through), x),
          .b = product(transposed(dy), product(x, transposed(layer.a_ri)))};
}

/// The expected values of the good step. StepGradients in the order of the trainables: A and B of
/// the first layer, then of the second.
struct Expected {
  double loss = 0, norm = 0;
  std::vector<Matrix> before, gradients;
};

Expected expect(const Toy& toy) {
  Expected out;
  const Matrix h = forward(toy.layers[0], toy.x),
               off = sum(forward(toy.layers[1], h), toy.target, -1);
  for (const double value : off.values) out.loss += 0.5 * value * value;
  const StepGradients second = backward(toy.layers[1], h, off),
                      first = backward(toy.layers[0], toy.x, second.x);
  out.gradients = {first.a, first.b, second.a, second.b};
  out.before = {toy.layers[0].a_ri, toy.layers[0].b_or, toy.layers[1].a_ri, toy.layers[1].b_or};
  for (const Matrix& gradient : out.gradients) {
    for (const double value : gradient.values) out.norm += value * value;
  }
  out.norm = std::sqrt(out.norm);
  return out;
}

at::Tensor to_tensor(const Matrix& m, at::Device device) {
  return at::tensor(m.values, at::kDouble).view({m.rows, m.cols}).to(at::kFloat).to(device);
}

class ToyModel : public torch::nn::Module {
 public:
  ToyModel(const Toy& toy, at::Device device) {
    const at::NoGradGuard no_grad;
    const std::array<std::string, 2> names = {"first", "second"};
    for (size_t i = 0; i < 2; ++i) {
      const Layer& layer = toy.layers[i];
      layers[i] = register_module(
          names[i], layers::Linear(kWidth, kWidth, false,
                                   at::TensorOptions().dtype(at::kFloat).device(device)));
      layers[i]->weight.copy_(to_tensor(layer.w_oi, device));
      lora::inject_lora({{names[i], "llm", layers[i]}}, {.rank = kRank, .alpha = kRank},
                        /*seed=*/0);
      layers[i]->adapter()->named_parameters()["lora_A"].copy_(to_tensor(layer.a_ri, device));
      layers[i]->adapter()->named_parameters()["lora_B"].copy_(to_tensor(layer.b_or, device));
    }
  }
  at::Tensor loss(const at::Tensor& x, const at::Tensor& target) {
    const at::Tensor off = layers[1]->forward(layers[0]->forward(x)).to(at::kFloat) - target;
    return (off * off).sum() * 0.5;
  }

  std::array<layers::Linear, 2> layers = {layers::Linear(nullptr), layers::Linear(nullptr)};
};

/// Collects deviations from the expected values.
class Judge {
 public:
  explicit Judge(StepCheck& check) : check_(check) {}

  void require(bool holds, const std::string& failure) {
    if (!holds) check_.failures.push_back(failure);
  }
  /// `tolerance` is relative; 0: exact.
  void number(const std::string& what, double got, double want, double tolerance) {
    require(std::abs(got - want) <= tolerance * std::abs(want),
            what + " is " + io::Json(got).dump() + ", not " + io::Json(want).dump());
  }
  /// Reports the first element that differs.
  void tensor(const std::string& what, const at::Tensor& got, const std::vector<double>& want,
              double tolerance) {
    const at::Tensor values = got.defined() ? got.detach().to(at::kCPU, at::kDouble).contiguous()
                                            : at::empty({0}, at::kDouble);
    if (values.numel() != static_cast<int64_t>(want.size()))
      return require(false, what + " is missing");
    for (size_t i = 0; i < want.size(); ++i) {
      const double value = values.const_data_ptr<double>()[i];
      if (std::abs(value - want[i]) <= tolerance * std::abs(want[i])) continue;
      return number(what + "[" + std::to_string(i) + "]", value, want[i], tolerance);
    }
  }

 private:
  StepCheck& check_;
};

void judge_overflow(Judge& judge, const ops::GradStats& stats, const train::Optimizer& optimizer,
                    const train::LossScaler& scaler, const Expected& want) {
  judge.require(stats.found_inf, "an overflow was not seen");
  for (size_t i = 0; i < want.before.size(); ++i) {
    const train::Slot& slot = optimizer.slots()[i];
    const std::vector<double> zeros(want.before[i].values.size(), 0.0);
    judge.tensor(slot.param.name + " behind a skipped step", slot.param.tensor,
                 want.before[i].values, 0);
    judge.tensor("the first moment of " + slot.param.name + " behind a skipped step",
                 slot.moment("exp_avg"), zeros, 0);
    judge.tensor("the second moment of " + slot.param.name + " behind a skipped step",
                 slot.moment("exp_avg_sq"), zeros, 0);
    judge.require(slot.steps == 0, "a skipped step was counted for " + slot.param.name);
  }
  if (scaler.state().enabled)
    judge.number("the loss scale behind a skipped step", scaler.state().scale,
                 kFirstScale * kBackoff, 0);
}

/// AdamW's first update: the moments are (1 - beta) times the clipped gradient and its square, the
/// step is rate * g / (|g| + eps).
void judge_update(Judge& judge, const ops::GradStats& stats, const train::Optimizer& optimizer,
                  const Expected& want) {
  constexpr double kRounding = 0x1p-20;  // a few consecutive roundings of float32
  judge.require(!stats.found_inf, "a good step was skipped");
  judge.number("the gradient norm", stats.norm, want.norm, kRounding);
  const double clip = std::min(1.0, kClip / (want.norm + 1e-6));
  for (size_t i = 0; i < want.gradients.size(); ++i) {
    const train::Slot& slot = optimizer.slots()[i];
    std::vector<double> first, second, after = want.before[i].values;
    for (size_t k = 0; k < after.size(); ++k) {
      const double gradient = want.gradients[i].values[k] * clip;
      first.push_back((1 - kBetas[0]) * gradient);
      second.push_back((1 - kBetas[1]) * gradient * gradient);
      after[k] -= kRate * gradient / (std::abs(gradient) + kEps);
    }
    judge.tensor("the gradient of " + slot.param.name, slot.param.tensor.grad(),
                 want.gradients[i].values, 0);
    judge.tensor("the first moment of " + slot.param.name, slot.moment("exp_avg"), first,
                 kRounding);
    judge.tensor("the second moment of " + slot.param.name, slot.moment("exp_avg_sq"), second,
                 kRounding);
    judge.tensor(slot.param.name, slot.param.tensor, after, kRounding);
    judge.require(slot.steps == 1, "the update of " + slot.param.name + " was not counted");
  }
}

}  // namespace

StepCheck check_step(at::Device device, at::ScalarType compute,
                     const std::function<void(int64_t step, train::Optimizer&)>& gradients_ready) {
  StepCheck check{
      .device = device.str(), .precision = train::compute_name(compute), .failures = {}, .loss = 0};
  Judge judge(check);
  const Toy toy = make_toy();
  const Expected want = expect(toy);
  const auto model = std::make_shared<ToyModel>(toy, device);
  const std::vector<lora::Trainable> trainables = lora::make_trainable(*model, {});
  train::Optimizer optimizer(trainables, train::param_groups(trainables, kRate, -1),
                             train::make_adamw({.betas = kBetas, .eps = kEps}));
  train::LossScaler scaler(
      {.enabled = compute == at::kHalf, .scale = kFirstScale, .backoff_factor = kBackoff});
  const ops::ComputeDtypeGuard dtype(compute);
  const at::Tensor target = to_tensor(toy.target, device);
  const auto step = [&](int64_t number, double input_factor) {
    const at::Tensor loss = model->loss(to_tensor(toy.x, device) * input_factor, target);
    scaler.scale(loss).backward();
    if (gradients_ready) gradients_ready(number, optimizer);
    scaler.unscale(optimizer, loss, kClip);
    scaler.step(optimizer, 1);
    check.loss = loss.item<double>();
    return scaler.update();
  };
  judge_overflow(judge, step(1, scaler.state().enabled ? 1 : 0x1p120), optimizer, scaler, want);
  optimizer.drop_gradients();
  judge_update(judge, step(2, 1), optimizer, want);
  judge.number("the loss", check.loss, want.loss, 0);
  return check;
}

}  // namespace lft::debug
