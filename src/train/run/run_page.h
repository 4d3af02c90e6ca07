// report.html of a run: written at its start, during it, and at its end.
#pragma once
#include <cmath>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "src/report/report.h"
#include "src/train/run/run.h"

namespace lft::train {

/// What the page needs in addition to the run and its metrics.
struct PageFacts {
  double eval_loss = NAN;
  std::vector<std::pair<std::string, double>> figures = {};  // of train.keep_best's metric, by name
  std::string images = {};  // the loss by image; empty: no row has one
};

class RunPage {
 public:
  /// `run` outlives this. `writes` false: another process writes the page.
  RunPage(Run& run, bool writes, std::function<double()> clock = {});

  /// Whether refresh() writes now.
  bool due() const;
  /// Writes the page of the run in progress, if at least a minute has passed since the last time
  /// and if all writing takes at most a hundredth of the time. A failure is a warning, once.
  void refresh(const PageFacts& facts);
  /// Writes the page of a run that has ended; `reason` is that of a failure. With `answer` the
  /// model answers rows first: false if a signal interrupted it, the page then has none of these
  /// answers.
  bool finish(const PageFacts& facts, report::RunState state, bool answer,
              const std::string& reason = {});

 private:
  report::ReportInput input(const PageFacts& facts, report::RunState state);
  void write(const report::ReportInput& input) const;

  Run& run_;
  const bool writes_;
  std::function<double()> clock_;                          // seconds
  std::optional<std::vector<report::ReportAnswer>> rows_;  // before training, once read
  std::optional<double> written_;                          // when refresh() last wrote
  double took_ = 0;
};

}  // namespace lft::train
