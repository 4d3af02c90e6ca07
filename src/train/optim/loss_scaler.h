// Dynamic loss scaling: semantics and state of PyTorch's GradScaler, with one state machine per
// optimizer. Runs no forward or backward pass.
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

/// What a checkpoint saves and restores. Valid between update() and the next unscale(). `scale`
/// holds a float32 value, as torch's does.
struct LossScale {
  bool enabled = true;
  double scale = 65536, growth_factor = 2, backoff_factor = 0.5;
  int64_t growth_interval = 2000,
          growth_tracker = 0;  // tracker: good steps in a row, below the interval
};

io::Json loss_scale_json(const LossScale& state);
/// Exactly the six fields, each in its range; throws kCheckpoint naming the field.
LossScale loss_scale_from(const io::Json& json);

/// For each optimizer of a step: READY -unscale-> UNSCALED -step-> STEPPED, and update() makes all
/// READY again. Every other order, and every step that could not train, is a kInternal error that
/// names state, cause and parameters, and changes nothing.
class LossScaler {
 public:
  /// Not enabled: scale 1 that never moves; the state machine and its errors stay the same.
  /// Throws kInternal for a state out of range.
  explicit LossScaler(LossScale state);

  /// loss * scale, ready for backward(). `loss`: one element with a graph behind it.
  at::Tensor scale(const at::Tensor& loss) const;
  /// What scale() multiplies by, for a backward pass that starts from it: counts as a call of
  /// scale().
  double seed() const;
  /// Unscales and checks the gradients of `optimizer`, and `loss` (one element; its graph is not
  /// needed). No gradient at all is an error, some absent ones are not. Throws kNumeric when the
  /// scale is so small that its inverse is no float32. `optimizer` must live until update().
  /// `agree` receives the result of the check before it is used.
  void unscale(Optimizer& optimizer, const at::Tensor& loss, double max_norm,
               const std::function<void(const ops::GradVerdict&)>& agree = {});
  /// The optimizer's update at its learning rates * factor; on the device it is a no-op where its
  /// own check found a non-finite value.
  void step(Optimizer& optimizer, double factor);
  /// The step's one host sync: counts the updates that were taken and moves the scale, down when
  /// any optimizer found a non-finite value. Of several optimizers: norms one after the other in
  /// the order of unscale(), first_bad counts through them, norm over all, the smallest clip.
  ops::GradStats update();

  const LossScale& state() const { return state_; }

 private:
  struct Checked {
    Optimizer* optimizer;
    ScalerStage stage;
    ops::GradVerdict verdict;
    std::vector<bool> present;  // which slots had a gradient
  };
  Checked* find(const Optimizer& optimizer);

  LossScale state_;
  std::vector<Checked> checked_;  // of this step; an optimizer that is not here is READY
  mutable ScalerEvidence seen_;   // moves no number
};

}  // namespace lft::train
