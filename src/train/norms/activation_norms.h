// How large each layer's output is in one step: its root mean square, seen in the step's own
// forward passes. Nothing is computed twice and no value of the step changes.
#pragma once
#include <string>
#include <vector>

#include "models/base/call.h"
#include "src/io/json.h"
#include "src/train/optim/optimizer.h"

namespace lft::train {

/// One number a layer, in the order of the forward pass.
struct LayerValue {
  std::string layer;  // canonical: "language_model.model.layers.3"
  double value = 0;
};

/// The layer that a module or a tensor belongs to: a decoder or vision layer, the projector, or a
/// module outside them ("language_model.lm_head").
std::string layer_of(const std::string& name);

/// The L2 norm of each layer's gradients from those of its tensors, by slot; slots' order.
std::vector<LayerValue> layer_grad_norms(const Optimizer& optimizer,
                                         const std::vector<double>& norms);

/// Install it (ObserveCalls) around a step. Outputs of decoder layers, vision layers and the
/// projector are squared and summed in double on their device, over all micro-batches, padding
/// included; of the last decoder layer there are the supervised positions only. What the backward
/// pass runs again is not counted.
class ActivationNorms : public CallObserver {
 public:
  void after(const std::string& path, const torch::nn::Module& module,
             const std::vector<at::Tensor>& outputs) override;
  void clear();
  /// What was seen since clear(), as data that add() takes in: of the processes of a run, one after
  /// the other, the sums are those of one that runs all micro-batches.
  io::Json seen() const;
  void add(const io::Json& seen);
  /// sqrt(sum of squares / elements) of each layer that ran since clear(): the one host read. Not
  /// finite where an output is not.
  std::vector<LayerValue> rms() const;

 private:
  struct Sum {
    std::string layer;
    std::vector<at::Tensor> squares;  // double [1] each, in order
    int64_t elements = 0;
  };
  std::vector<Sum> sums_;
};

}  // namespace lft::train
