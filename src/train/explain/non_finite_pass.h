// One forward and one backward pass under watch: who made the first value, and the first gradient,
// that is not finite. For any model whose modules run through call(); knows no run.
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
  double largest = 0;         // magnitude, not finite where a value is not
  std::vector<float> sample;  // evenly spaced elements
};

/// What one node of the graph did, in the order of the backward pass: largest magnitudes of the
/// gradients it received and returned.
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
  std::vector<NamedTensor> parameters = {};  // whose gradients are asked for
  std::vector<NamedTensor> known = {};       // what has a name: weights, pixels
  double loss_scale = 1;                     // multiplies the loss before the backward pass
  bool backward = true;                      // off: no graph is made
  bool ops = true;                           // off: only modules and graph nodes are looked at
};

/// A module's output that is not finite.
struct BadOutput {
  std::string module;
  std::vector<int64_t> shape;
  int64_t index = 0;  // flat, of its first value that is not finite
};

struct PassReport {
  double loss = NAN;
  std::optional<BadValue> forward, backward;  // the first ones
  std::optional<BadOutput> output;  // of the first module; inner ones end before outer ones
  std::vector<ModuleRow> modules;
  std::vector<GradientRow> trace;
  std::vector<BadGradient> gradients;  // those that are not finite, in the order of the parameters
  double gradient_norm = 0;            // L2 of all, the loss scale taken out

  /// What a training step would say. A bad value that reached neither the loss nor a parameter's
  /// gradient is harmless.
  bool finite() const { return std::isfinite(loss) && gradients.empty(); }
};

/// Accumulates no gradient into a parameter, moves nothing. Every op and every node is looked at
/// until the first bad value of each pass is found. This is autograd's anomaly detection for one
/// pass, for infinities too, and with the module's name.
PassReport watch_pass(const PassRequest& request);

}  // namespace lft::train
