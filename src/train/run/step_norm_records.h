// The norms of a run's steps: gradients per module, and the outputs of layers in the steps that
// record them, with the warnings that their trends give.
#pragma once
#include "src/dist/ranks.h"
#include "src/train/norms/activation_norms.h"
#include "src/train/record/run_files.h"
#include "src/train/run/run.h"
#include "src/train/step/global_batch.h"

namespace lft::train {

class StepNormRecords {
 public:
  StepNormRecords(Run& run, dist::Ranks& ranks, RunFiles& files)
      : run_(run), ranks_(ranks), files_(files) {}
  /// The observer of the next step's passes, empty; null unless it is the first step or one that
  /// log.layer_activation_norms_every selects.
  ActivationNorms* begin_step();
  /// After a step that was taken.
  void record(const GlobalBatch& whole, const StepOutcome& outcome);

 private:
  bool observes(int64_t step) const;
  void gather(int64_t step);

  Run& run_;
  dist::Ranks& ranks_;
  RunFiles& files_;
  ActivationNorms activations_;
};

}  // namespace lft::train
