// When a run saves its steps, and in which state: a run that resumes repeats nothing that was
// recorded, and records nothing twice.
#pragma once
#include <cstdint>
#include <string>

#include "src/dist/ranks.h"
#include "src/train/record/run_files.h"
#include "src/train/record/saved_steps.h"
#include "src/train/run/run.h"

namespace lft::train {

/// Rank 0 writes; the others call the same functions.
class RunSaves {
 public:
  /// All arguments outlive this.
  RunSaves(Run& run, dist::Ranks& ranks, RunFiles& files, SavedSteps& saved)
      : run_(run), ranks_(ranks), files_(files), saved_(saved) {}

  /// Remembers the state of the run after a finished step or evaluation.
  void commit();
  /// The current step is on disk already: a resumed run starts from it.
  void mark_saved() { saved_step_ = run_.state.step; }
  /// The step on disk lacks an evaluation of the current step.
  void mark_unsaved() { saved_step_ = -1; }
  /// Saves the current step; on a GPU the writing may continue after this returns.
  void save();
  /// Waits until the current step is on disk.
  void finish();
  /// Saves the current step again, with the evaluation that followed.
  void save_evaluated();
  /// Saves the last finished step without an exchange, in the state of the last commit(): a run
  /// that resumes from it writes the later records again.
  void save_committed();
  /// save_committed() before the run ends with a non-finite value: a failure to save must not hide
  /// that error.
  void save_before_non_finite();

 private:
  Run& run_;
  dist::Ranks& ranks_;
  RunFiles& files_;
  SavedSteps& saved_;
  int64_t saved_step_ = -1;
  struct Committed {
    uint64_t metrics_bytes = 0;
    size_t skips = 0;
    std::string hash;
    LossScale scale;
  } committed_;
};

}  // namespace lft::train
