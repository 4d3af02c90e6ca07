// The playbook's exercise, three layers of which the second changes its computation after step 50:
// trained until it breaks, then diagnosed.
#pragma once
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "debug/names.h"
#include "models/base/call.h"
#include "src/train/explain/non_finite_pass.h"

namespace lft::test {

using Bend = std::function<at::Tensor(const at::Tensor&)>;

struct LayerImpl : torch::nn::Module {
  LayerImpl(int64_t in, int64_t out) {
    weight =
        register_parameter("weight", at::randn({out, in}) / std::sqrt(static_cast<double>(in)));
    bias = register_parameter("bias", at::zeros({out}));
  }
  at::Tensor forward(const at::Tensor& x) { return bend(at::linear(x, weight, bias)); }
  at::Tensor weight, bias;
  Bend bend = [](const at::Tensor& x) { return x; };
};
TORCH_MODULE(Layer);

/// tanh between the first two layers; layer 2 changes after step 50 of an external
/// counter.
struct Exercise {
  explicit Exercise(const Bend& log_line) {
    at::manual_seed(7);
    layers = {Layer(8, 16), Layer(16, 16), Layer(16, 1)};
    x = at::randn({32, 8});
    y = x.sum(1, /*keepdim=*/true);
    layers[1]->bend = [this, log_line](const at::Tensor& in) {
      return step > 50 ? log_line(in) : in;
    };
  }

  at::Tensor loss() const {
    at::Tensor h = at::tanh(call("layer1", layers[0], x));
    h = call("layer2", layers[1], h);
    return at::mse_loss(call("layer3", layers[2], h), y);
  }

  std::vector<at::Tensor> parameters() const {
    std::vector<at::Tensor> all;
    for (const Layer& layer : layers) {
      for (const at::Tensor& parameter : layer->parameters()) all.push_back(parameter);
    }
    return all;
  }

  /// Plain gradient descent until loss or a gradient is not finite; returns that step and
  /// the weights at its start.
  int64_t train_until_broken(double rate) {
    for (step = 1; step <= 200; ++step) {
      const at::Tensor value = loss();
      value.backward();
      bool fine = at::isfinite(value).item<bool>();
      for (const at::Tensor& parameter : parameters())
        fine = fine && at::isfinite(parameter.grad()).all().item<bool>();
      const at::NoGradGuard no_grad;
      for (at::Tensor parameter : parameters()) {
        if (fine) parameter.sub_(parameter.grad(), rate);
        parameter.mutable_grad().reset();
      }
      if (!fine) return step;
    }
    return 0;
  }

  PassReport hunt() const {
    PassRequest request{.loss = [this] { return loss(); }, .parameters = {}, .known = {}};
    for (size_t i = 0; i < layers.size(); ++i) {
      for (const auto& parameter : layers[i]->named_parameters()) {
        request.parameters.push_back(
            {"layer" + std::to_string(i + 1) + "." + parameter.key(), parameter.value()});
      }
    }
    return watch_pass(request);
  }

  std::vector<Layer> layers;
  at::Tensor x, y;
  int64_t step = 0;
};

}  // namespace lft::test
