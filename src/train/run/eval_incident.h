// An evaluation during training with non-finite rows: a warning, an event and, for the first one,
// an incident folder for `lft replay`.
#pragma once
#include <string>

#include "src/infer/evaluate.h"
#include "src/train/record/run_files.h"
#include "src/train/run/run.h"

namespace lft::train {

class EvalIncidents {
 public:
  /// `writes` false: another process of the run writes the folder.
  EvalIncidents(Run& run, RunFiles& files, bool writes);
  /// Needs result.not_finite > 0. Changes no state.
  void report(const infer::EvalResult& result);

 private:
  Run& run_;
  RunFiles& files_;
  const bool writes_;
  std::string folder_;  // of the first in this process; empty: none yet
};

}  // namespace lft::train
