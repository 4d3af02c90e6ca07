// Errors for uses of the loss scaler with which nothing could train: cause, parameters, next step.
// All are kInternal.
#pragma once
#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/function.h>

#include <memory>
#include <string>
#include <vector>

#include "src/train/optim/optimizer.h"

namespace lft::train {

enum class ScalerStage { kReady, kUnscaled, kStepped };

/// Evidence of where the gradients are if the optimizer has none. Keeps no tensor, graph or
/// optimizer alive.
class ScalerEvidence {
 public:
  void saw_loss(const at::Tensor& loss);
  void saw_seed() { ++losses_; }
  void saw_gradients(const Optimizer& optimizer);
  void next_step() { graph_.reset(), losses_ = 0; }

  struct Owned {
    std::string name;
    c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl> tensor;
  };
  const std::vector<std::vector<Owned>>& optimizers() const { return optimizers_; }
  int64_t losses() const { return losses_; }
  /// The tensors that would receive a gradient of the last loss; empty if its graph is freed.
  std::vector<at::Tensor> reached() const;

 private:
  std::vector<std::vector<Owned>>
      optimizers_;  // each that has had gradients, while its tensors live
  std::weak_ptr<torch::autograd::Node> graph_;  // of the last loss
  int64_t losses_ = 0;                          // since the last update
};

/// "unscale() was called twice", "step() on another optimizer", ... `call` is the call made in the
/// wrong stage.
[[noreturn]] void throw_wrong_stage(const std::string& call, const Optimizer& optimizer,
                                    ScalerStage stage,
                                    const std::vector<const Optimizer*>& unscaled);
[[noreturn]] void throw_nothing_checked();
[[noreturn]] void throw_no_gradient(const Optimizer& optimizer, const ScalerEvidence& seen);
[[noreturn]] void throw_gradients_changed(const Optimizer& optimizer,
                                          const std::vector<bool>& present);

/// Throws if there are gradients but scale() was not called in this step.
void require_scaled(const Optimizer& optimizer, const ScalerEvidence& seen);
/// Throws unless `loss` has exactly one element.
void require_scalar(const at::Tensor& loss);
/// Throws unless backward() on `loss` can reach a tensor.
void require_graph(const at::Tensor& loss, const ScalerEvidence& seen);

}  // namespace lft::train
