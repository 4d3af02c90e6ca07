// The files of a run: metrics.jsonl, TensorBoard, and the progress on the terminal.
#pragma once
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "kernels/common/error.h"
#include "src/recipe/recipe.h"
#include "src/report/metrics.h"
#include "src/report/progress.h"
#include "src/report/tensorboard.h"
#include "src/train/norms/norm_watch.h"
#include "src/train/record/run_hash.h"
#include "src/train/record/step_clock.h"
#include "src/train/step/step.h"

namespace lft::train {

/// Learning rates of the optimizer's groups after the base group, by name.
using GroupRates = std::vector<std::pair<std::string, double>>;
GroupRates rates_of(const Optimizer& optimizer, double factor);

/// The name of each source of data.train in metrics: its path, numbered if a path is repeated.
std::vector<std::string> source_names(const recipe::Recipe& recipe);

class RunFiles {
 public:
  /// `metrics_bytes` of metrics.jsonl are kept (0: a fresh run). A shorter file loses its last
  /// incomplete line and is reported. `writes` false: no file is opened, as another process of the
  /// run writes it.
  RunFiles(const recipe::Recipe& recipe, report::ProgressOptions progress, uint64_t metrics_bytes,
           bool writes = true);

  /// `memory_bytes`: the peak so far, for TensorBoard.
  void step(const StepOutcome& outcome, const StepState& state, const StepHashes& hashes,
            const GroupRates& lrs, const StepTimes& times, double memory_bytes = 0);
  void layer_norms(const StepOutcome& outcome, const Optimizer& optimizer, int64_t step);
  void activations(const std::vector<LayerValue>& rms, int64_t step);
  void warn(const std::vector<NormWarning>& warnings, int64_t step);
  /// A warning as a block, and an event of that name.
  void warn(const std::string& name, const ErrorInfo& info, int64_t step);
  /// `figures`: of a metric, by name.
  void eval(int64_t step, double loss, int64_t samples,
            const std::vector<std::pair<std::string, double>>& figures);
  /// The warnings that were printed since the last step or event are written before it.
  void event(const std::string& name, int64_t step, const io::Json& fields);
  /// Writes the warnings that were printed since the last step or event.
  void write_warnings(int64_t step);
  /// Prints a line about something that is an event. "warning: ..." is a warning.
  void note(const std::string& line);
  /// For TensorBoard: the run has ended.
  void ended(bool success);
  /// Shows the bar of the steps before the first one.
  void steps_begin() { progress_.begin(); }
  /// The bar of the steps stays in its current state; later output is not a step.
  void steps_done() { progress_.finish(); }

  /// Flushes everything written so far to disk; returns the size of metrics.jsonl.
  uint64_t sync();
  /// The size of metrics.jsonl, flushed or not.
  uint64_t size() const { return metrics_ ? metrics_->offset() : 0; }

 private:
  void add_scalars(const report::StepMetrics& line, double memory_bytes);

  std::optional<report::MetricsFile> metrics_;
  std::set<std::string> warnings_;  // in the file: a resumed run prints some again
  report::Progress progress_;
  std::vector<std::string> sources_;  // names of the sources of data.train, if it is a list
  bool pairs_;                        // whether its rows are pairs of answers
  std::unique_ptr<report::TensorBoardWriter> tensorboard_;
};

}  // namespace lft::train
