// A complete run: from a recipe to the adapter, metrics and report in its output directory.
#pragma once
#include <functional>

#include "models/family/family.h"
#include "src/data/loader.h"
#include "src/dist/ranks.h"
#include "src/recipe/recipe.h"
#include "src/train/optim/optimizer.h"

namespace lft::train {

struct TrainOptions {
  bool resume = false;  // continue from the newest checkpoint that verifies; without one,
                        // start from the beginning
                        // Hooks for tests: before a step's gradients are checked, and after a
                        // checkpoint's weights are
                        // loaded but before they are compared.
  std::function<void(int64_t step, Optimizer&)> gradients_ready = {};
  std::function<void(family::Model&)> restored = {};
  /// A partial run: with `stop_after_step` > 0 it saves after that step (or the last one, if that
  /// is earlier), writes the adapter and ends, without final evaluation, gate and report.
  /// `part_done` then receives the samples of the next step.
  int64_t stop_after_step = 0;
  std::function<void(int64_t step, const data::StepSamples& next)> part_done = {};
  /// As `stop_after_step`, with the step at which a sweep compares its runs (halving_step() of
  /// src/runs/halving.h). A run that ends there or before is done as usual.
  bool first_third = false;
  bool folder_goes = false;             // deleted afterwards, so the last line does not refer to it
  dist::Ranks* ranks = &dist::alone();  // the processes of the run
};

/// Returns the exit code: 0 if every step was done; 130 or 75 if a signal stopped it after a step,
/// with a checkpoint saved (75 with nothing written if it came before the first one). With several
/// processes, rank 0 writes; if a process is lost it saves the last finished step.
int train(const recipe::Recipe& recipe, const TrainOptions& options = {});

}  // namespace lft::train
