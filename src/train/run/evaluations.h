// The evaluations of a run: loss and answers over data.eval, the best of them, and what the images
// change in the loss.
#pragma once
#include <cmath>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "src/dist/ranks.h"
#include "src/infer/evaluate.h"
#include "src/train/memory/out_of_memory.h"
#include "src/train/proof/first_loss.h"
#include "src/train/record/run_files.h"
#include "src/train/record/saved_steps.h"
#include "src/train/run/eval_incident.h"
#include "src/train/run/run.h"

namespace lft::train {

/// Every process of a run calls the same functions at the same step.
class Evaluations {
 public:
  /// All of them outlive this.
  Evaluations(Run& run, dist::Ranks& ranks, RunMemory& memory, RunFiles& files, SavedSteps& saved);

  /// The evaluation of the step that the run is at: data.eval and what the images change in the
  /// loss of the probe's rows, into metrics and events, and into Run::evaluated, from which
  /// checkpoints have it; a new best one is saved where train.keep_best asks for one. False where a
  /// signal stopped it, of any process: then nothing of it counts or is written, and it stays due.
  /// Memory that is free is given back before and after it, and at no other time between steps: its
  /// batches have other sizes.
  bool evaluate();
  /// Whether the last of them saw the weights that the run is at.
  bool of_this_step() const;
  /// Restores the weights of the best evaluation, which become the final ones.
  void go_back_to_best();
  /// An event and a line where train.patience has ended the run.
  void tell_of_early_stop();
  /// Measures the effect of the images, unless the last evaluation in this process has done so.
  void look_at_images();
  /// Warns where the trained model does not see its images.
  void tell_of_images();

  /// Of the final weights: NaN and nothing before the first evaluation.
  double loss() const { return loss_; }
  const std::vector<std::pair<std::string, double>>& figures() const { return figures_; }
  /// The loss with the rows' own images, others' and grey ones; empty where no row shows one.
  std::string images() const;

 private:
  bool evaluate_rows();
  void note_skipped(const infer::EvalResult& result);
  void record_images();
  void judge(double cost, bool scheduled);
  bool by_loss() const;

  Run& run_;
  dist::Ranks& ranks_;
  RunMemory& memory_;
  RunFiles& files_;
  SavedSteps& saved_;
  std::set<std::string> skipped_;  // lines about bad samples that were printed already
  double loss_ = NAN;
  std::vector<std::pair<std::string, double>> figures_;  // by name
  std::optional<ImageLosses> images_;
  EvalIncidents incidents_;
};

}  // namespace lft::train
