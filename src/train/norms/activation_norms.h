// The root mean square of each layer's output in a step, computed in the step's own forward passes.
// Nothing is computed twice, and the step's values do not change.
#pragma once
#include <string>
#include <vector>

#include "models/base/call.h"
#include "src/io/json.h"
#include "src/train/optim/optimizer.h"

namespace lft::train {

/// One number per layer, in the order of the forward pass.
struct LayerValue {
  std::string layer;  // canonical: "language_model.model.layers.3"
  double value = 0;
};

/// The layer of a module or a tensor: a decoder or vision layer, the projector, or a module outside
/// them ("language_model.lm_head").
std::string layer_of(const std::string& name);

/// The L2 norm of each layer's gradients from those of its tensors, in slot order.
std::vector<LayerValue> layer_grad_norms(const Optimizer& optimizer,
                                         const std::vector<double>& norms);

/// Install it (ObserveCalls) around a step. Outputs of decoder layers, vision layers and the
/// projector are squared and summed in double on their device, over all micro-batches and padding;
/// for the last decoder layer only over the supervised positions. Recomputation in the backward
/// pass is not counted.
class ActivationNorms : public CallObserver {
 public:
  void after(const std::string& path, const torch::nn::Module& module,
             const std::vector<at::Tensor>& outputs) override;
  void clear();
  /// The sums since clear(), as input of add(): adding those of all processes of a run in order
  /// gives the sums of a process that runs all micro-batches.
  io::Json seen() const;
  void add(const io::Json& seen);
  /// sqrt(sum of squares / elements) of each layer that ran since clear(): the only host read. Not
  /// finite if an output is not.
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
