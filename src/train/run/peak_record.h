// Records the peak memory of a run's steps with the predicted one.
#pragma once
#include "src/data/loader.h"
#include "src/train/memory/micro_batch.h"
#include "src/train/record/run_files.h"
#include "src/train/run/run.h"

namespace lft::train {

class PeakRecord {
 public:
  PeakRecord(Run& run, RunFiles& files) : run_(run), files_(files), seen_(run) {}
  /// Before each step; without effect if the run's largest micro-batch was searched for.
  void note(const data::StepSamples& samples);
  /// `peak`: of the steps, in bytes. Predicted for the run's largest micro-batch if it was searched
  /// for, else for the largest of these steps. No row is measured again.
  void record(double peak) const;

 private:
  MicroBatchShape largest_seen() const;

  Run& run_;
  RunFiles& files_;
  LargestMicroBatch seen_;  // of this process's steps, unless run_.worst is known
};

}  // namespace lft::train
