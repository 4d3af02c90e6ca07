// Runs a forward and a backward pass under observation and finds the source of the first non-finite
// value and gradient. Works for any model whose modules run through call().
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "src/train/explain/op_watch.h"

namespace lft::train {

/// The output of one call of a module, in the order in which calls end.
struct ModuleRow {
  std::string module;
  at::ScalarType dtype = at::kFloat;
  double largest = 0;         // magnitude; not finite if any value is not
  std::vector<float> sample;  // evenly spaced elements
};

/// One graph node, in the order of the backward pass: the largest magnitudes of the gradients that
/// it received and returned.
struct GradientRow {
  std::string module, node;
  double received = 0, returned = 0;
};

struct BadGradient {
  std::string name;  // of the parameter
  TensorFacts facts;
};

struct PassRequest {
  std::function<at::Tensor()> loss;          // runs the model, builds the graph
  std::vector<NamedTensor> parameters = {};  // parameters to compute gradients for
  std::vector<NamedTensor> known = {};       // named tensors: weights, pixels
  double loss_scale = 1;                     // multiplies the loss before the backward pass
  bool backward = true;                      // false: no graph is built
  bool ops = true;                           // false: only modules and graph nodes are checked
};

/// A module's output that is not finite.
struct BadOutput {
  std::string module;
  std::vector<int64_t> shape;
  int64_t index = 0;  // flat, of its first value that is not finite
};

struct PassReport {
  double loss = NAN;
  std::optional<BadValue> forward, backward;  // the first in each pass
  std::optional<BadOutput> output;  // of the first module; inner ones end before outer ones
  std::vector<ModuleRow> modules;
  std::vector<GradientRow> trace;
  std::vector<BadGradient> gradients;  // non-finite ones, in the order of the parameters
  double gradient_norm = 0;            // L2 norm over all, without the loss scale

  /// The result that a training step would report. A non-finite value that reached neither the loss
  /// nor a parameter's gradient is harmless.
  bool finite() const { return std::isfinite(loss) && gradients.empty(); }
};

/// Does not accumulate gradients into parameters or update them. Every op and node is checked until
/// the first bad value of each pass is found. Like autograd's anomaly detection for one pass, but
/// also for infinities, and with the module's name.
PassReport watch_pass(const PassRequest& request);

}  // namespace lft::train
