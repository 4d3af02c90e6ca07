// The evaluations of a run: loss and answers over data.eval, the best of them, and the effect of
// the images on the loss.
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
  /// All arguments outlive this.
  Evaluations(Run& run, dist::Ranks& ranks, RunMemory& memory, RunFiles& files, SavedSteps& saved);

  /// Evaluates the current step: data.eval and the effect of the images on the
  /// loss of the probe's rows. Writes metrics, events and Run::evaluated, which
  /// checkpoints save; saves a new best one if train.keep_best requests it.
  /// False if a signal, to any process, stopped it: then nothing is counted or
  /// written, and it stays due. Free memory is returned before and after it,
  /// and at no other time between steps: its batches have other sizes.
  bool evaluate();
  /// Whether the last evaluation used the current weights.
  bool of_this_step() const;
  /// Restores the weights of the best evaluation, which become the final ones.
  void go_back_to_best();
  /// Writes an event and a line if train.patience has ended the run.
  void tell_of_early_stop();
  /// Measures the effect of the images, unless the last evaluation in this process did.
  void look_at_images();
  /// Warns if the trained model ignores its images.
  void tell_of_images();

  /// For the final weights: NaN and empty before the first evaluation.
  double loss() const { return loss_; }
  const std::vector<std::pair<std::string, double>>& figures() const { return figures_; }
  /// The loss with the rows' own, others' and grey images; empty if no row has one.
  std::string images() const;

 private:
  bool evaluate_rows();
  void note_skipped(const infer::EvalResult& result);
  void record_images();
  /// What train.keep_best minimises.
  double cost_of(const infer::EvalResult& result) const;
  /// Whether an update has changed the weights before the newest evaluation.
  bool changed_model() const;
  void judge(double cost, bool scheduled);
  bool by_loss() const;
  std::string step_text(const std::string& what) const;

  Run& run_;
  dist::Ranks& ranks_;
  RunMemory& memory_;
  RunFiles& files_;
  SavedSteps& saved_;
  std::set<std::string> skipped_;  // lines about bad samples that were already printed
  double loss_ = NAN;
  std::vector<std::pair<std::string, double>> figures_;  // by name
  std::optional<ImageLosses> images_;
  EvalIncidents incidents_;
};

}  // namespace lft::train
