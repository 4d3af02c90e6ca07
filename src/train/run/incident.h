// The folder written for a non-finite step: the computed values and samples, how that batch differs
// from the last good one, the findings of a replay, and the row and token that cause it.
// incidents/step-N/: incident.json, recipe.yaml, trainables.safetensors (the weights at the start
// of the step).
#pragma once
#include <optional>
#include <string>

#include "src/train/run/run.h"

namespace lft::train {

struct IncidentFacts {
  const data::StepSamples& samples;
  const StepOutcome& outcome;
  StepState before;                    // at the start of the step
  std::string action;                  // fp32_recovery or stop
  double lr_before = 0, lr_after = 0;  // of the first group, before and after the recovery
  const std::optional<data::StepSamples>& last_good;  // of the last step taken in this process
  int64_t last_good_step = 0;
};

struct Incident {
  std::string dir;
  std::string culprit = {};  // "digit-0058, position 17": bad_rows_text()
  bool names_a_row = false;
  std::string image = {};  // file of the row that causes it; empty: none, or no single row
};

/// Replays the batch, micro-batch by micro-batch: in the step's precision (loss, first bad
/// gradient, first module whose output is not finite) and in FP32 (loss); non-finite ones also row
/// by row. No parameter, gradient, moment, sampler or generator changes.
Incident write_incident(Run& run, const StepOptions& options, const IncidentFacts& facts);

/// Writes an incident folder, incidents/NAME: `json` as incident.json, the recipe, and the current
/// weights, whose sha256 is added to `json`. Returns its path.
std::string write_incident_folder(const Run& run, const std::string& name, io::Json json);

}  // namespace lft::train
