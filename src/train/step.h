// One optimizer step over one global batch. The only place that zeroes, runs, differentiates, checks, clips, steps and schedules.
#pragma once
#include <string>
#include <vector>

#include "models/llava/llava.h"
#include "src/data/loader.h"
#include "src/train/optimizer.h"
#include "src/train/schedule.h"

namespace lft {

/// What moves from step to step beside weights and moments.
struct StepState {
  int64_t step = 0;   // steps done, skipped ones counted: the next is step + 1
  int64_t taken = 0;  // optimizer steps taken: what the schedule counts
  at::ScalarType compute = at::kFloat;
};

struct StepOptions {
  EncodeOptions encode;
  at::Device device = at::kCPU;
  double clip_grad_norm = 1;  // 0: off
  uint64_t seed = 42;         // of the dropout masks
};

struct StepOutcome {
  bool skipped = false;  // no supervised token: nothing moved but the step number
  double loss = 0, grad_norm = 0, lr = 0;
  int64_t supervised = 0, tokens = 0;
  std::vector<double> grad_norms;  // by slot of the optimizer
};

/// Loss: sum over the supervised tokens of the whole global batch / their count. Throws kNumeric, with nothing moved and the gradients
/// dropped, when the loss or a gradient is not finite; naming step, loss, norm, the first bad tensor and the samples.
StepOutcome train_step(Llava& model, AdamW& optimizer, const Schedule& schedule, const StepOptions& options, const StepSamples& samples,
                       StepState& state);

}  // namespace lft
