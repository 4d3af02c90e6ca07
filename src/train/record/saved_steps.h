// The saved steps of a run: checkpoints/, for resuming, and best/, whose weights become the final
// ones under train.keep_best.
#pragma once
#include <cstdint>
#include <string>

#include "src/checkpoint/checkpoint.h"
#include "src/checkpoint/writer.h"
#include "src/recipe/recipe.h"

namespace lft::train {

class SavedSteps {
 public:
  /// `behind`: as in CheckpointWriter, for checkpoints/.
  SavedSteps(const recipe::Recipe& recipe, bool behind);

  void save(checkpoint::Checkpoint step) { writer_.save(std::move(step)); }
  /// Besides this step, best/ keeps the steps that a checkpoint names as its best: a run that
  /// resumes from that checkpoint uses them for its outputs.
  void save_best(const checkpoint::Checkpoint& step);
  /// Waits until everything is on disk. best/ then has only `best`, the run's best step, and the
  /// steps that the checkpoints name.
  void finish(int64_t best);

 private:
  void retire_best(int64_t best);

  const recipe::Recipe& recipe_;
  checkpoint::CheckpointWriter writer_;
};

/// best/step-N of a run. kCheckpoint if it does not verify or another run saved it.
checkpoint::Checkpoint load_best(const recipe::Recipe& recipe, int64_t step,
                                 const std::string& run_id);

/// Ensures that a run that resumes from `newest` can restore its best evaluation: best/ has that
/// step, or it is copied from checkpoints/. kCheckpoint otherwise.
void require_best(const recipe::Recipe& recipe, const checkpoint::Checkpoint& newest);

}  // namespace lft::train
