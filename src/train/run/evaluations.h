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
#include "src/train/run/eval_incident.h"
#include "src/train/run/run.h"

namespace lft::train {

/// Every process of a run calls the same functions at the same step.
class Evaluations {
 public:
  /// `ranks`: null, this process is alone. All of them outlive this.
  Evaluations(Run& run, dist::Ranks* ranks, RunMemory& memory, RunFiles& files);

  /// What the images change in the loss of the probe's rows by now.
  void look_at_images();
  /// data.eval as the model is now, into metrics and events; a new best one is saved where
  /// train.keep_best asks for one. Nothing counts where a signal stopped it. Memory that is free is
  /// given back before and after it, and at no other time between steps: its batches have other
  /// sizes.
  void evaluate();
  /// Whether the last of them saw the weights that the run stands at.
  bool of_this_step() const;
  /// What is handed out is the best evaluation's, not the last step's.
  void go_back_to_best();
  /// Warns where the trained model does not see its images.
  void tell_of_images();

  /// Of what is handed out: NaN and nothing before the first evaluation.
  double loss() const { return loss_; }
  const std::vector<std::pair<std::string, double>>& figures() const { return figures_; }
  /// The loss with the rows' own images, others' and grey ones; empty where no row shows one.
  std::string images() const;

 private:
  void note_skipped(const infer::EvalResult& result);
  void judge(double cost);
  bool by_loss() const;

  Run& run_;
  dist::Ranks* const ranks_;
  RunMemory& memory_;
  RunFiles& files_;
  std::set<std::string> skipped_;  // lines about bad samples that are said already
  int64_t step_ = -1;              // of the last evaluation
  double loss_ = NAN;
  std::vector<std::pair<std::string, double>> figures_;  // by name
  std::optional<ImageLosses> images_;
  EvalIncidents incidents_;
};

}  // namespace lft::train
