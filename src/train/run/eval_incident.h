// An evaluation during training whose rows are not all finite: a warning, an event, and, for the
// first one, an incident folder that `lft replay` runs again.
#pragma once
#include <string>

#include "src/infer/evaluate.h"
#include "src/train/record/run_files.h"
#include "src/train/run/run.h"

namespace lft::train {

class EvalIncidents {
 public:
  /// `writes`: else another process of the run writes the folder.
  EvalIncidents(Run& run, RunFiles& files, bool writes);
  /// Needs result.not_finite > 0. Moves nothing.
  void report(const infer::EvalResult& result);

 private:
  Run& run_;
  RunFiles& files_;
  const bool writes_;
  std::string folder_;  // of the first one of this process; empty: there was none yet
};

}  // namespace lft::train
