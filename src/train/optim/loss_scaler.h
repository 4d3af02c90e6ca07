// Dynamic loss scaling with the semantics and state of PyTorch's GradScaler and one state machine
// per optimizer. Runs no forward or backward pass.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "models/ops/update/grad_stats.h"
#include "src/io/json.h"
#include "src/train/optim/loss_scaler_misuse.h"
#include "src/train/optim/optimizer.h"

namespace lft::train {

/// The state in a checkpoint. Valid between update() and the next unscale(). `scale` has a float32
/// value, as in torch.
struct LossScale {
  bool enabled = true;
  double scale = 65536, growth_factor = 2, backoff_factor = 0.5;
  int64_t growth_interval = 2000,
          growth_tracker = 0;  // tracker: consecutive good steps, below the interval
};

io::Json loss_scale_json(const LossScale& state);
/// Requires exactly the six fields, each in its range; throws kCheckpoint with the field's name.
LossScale loss_scale_from(const io::Json& json);

/// For each optimizer of a step: READY -unscale-> UNSCALED -step-> STEPPED; update() makes all
/// READY again. Any other order, and any step that could not train, is a kInternal error with
/// state, cause and parameters, and changes nothing.
class LossScaler {
 public:
  /// Not enabled: a constant scale of 1; the state machine and its errors stay the same. Throws
  /// kInternal for a state out of range.
  explicit LossScaler(LossScale state);

  /// loss * scale, ready for backward(). `loss`: one element with a graph.
  at::Tensor scale(const at::Tensor& loss) const;
  /// The factor of scale(), for a backward pass that
  /// starts from it: counts as a call of scale().
  double seed() const;
  /// Unscales and checks the gradients of `optimizer`, and `loss` (one element; its graph is not
  /// needed). No gradient at all is an error, some absent ones are not. Throws kNumeric if the
  /// scale is too small for a float32 inverse. `optimizer` must live until update(). `agree`
  /// receives the result of the check before it is used.
  void unscale(Optimizer& optimizer, const at::Tensor& loss, double max_norm,
               const std::function<void(const ops::GradVerdict&)>& agree = {});
  /// The optimizer's update at its learning rates * factor; a no-op on the device if its own check
  /// found a non-finite value.
  void step(Optimizer& optimizer, double factor);
  /// The step's only host sync: counts the updates that were taken and adjusts the scale, down if
  /// any optimizer found a non-finite value. For several optimizers: norms in the order of
  /// unscale(), first_bad counted through them, norm over all, the smallest clip.
  ops::GradStats update();

  const LossScale& state() const { return state_; }

 private:
  struct Checked {
    Optimizer* optimizer;
    ScalerStage stage;
    ops::GradVerdict verdict;
    std::vector<bool> present;  // slots with a gradient
  };
  Checked* find(const Optimizer& optimizer);

  LossScale state_;
  std::vector<Checked> checked_;  // in this step; an optimizer that is not listed is READY
  mutable ScalerEvidence seen_;   // has no effect on results
};

}  // namespace lft::train
