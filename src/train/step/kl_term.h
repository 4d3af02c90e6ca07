// The KL divergence from the reference that an objective uses (Objective::uses_kl()).
#pragma once
#include "src/train/step/step.h"

namespace lft::train {

/// The estimate of the step, the same in all processes; `context` is that of this process's first
/// pass. The policy has the dropout of the pass of the same row, the reference none: the model with
/// options.initial, which are exchanged for the current values meanwhile. `whole` contains the
/// answers. An out-of-memory error in one process is OutOfMemoryElsewhere in the others.
double kl_term(const TrainState& train_state, const StepOptions& options,
               const objective::ForwardContext& context, const data::StepSamples& samples,
               const GlobalBatch& whole, const StepState& state);

}  // namespace lft::train
