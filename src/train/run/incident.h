// The folder a non-finite step leaves behind: what was computed on which samples, how that batch
// differs from the last good one, what a replay of it finds, and which row and token is at fault.
// incidents/step-N/: incident.json, recipe.yaml, trainables.safetensors (the weights the step
// started from).
#pragma once
#include <optional>
#include <string>

#include "src/train/run/run.h"

namespace lft::train {

struct IncidentFacts {
  const data::StepSamples& samples;
  const StepOutcome& outcome;
  StepState before;                    // as the step found it
  std::string action;                  // fp32_recovery or stop
  double lr_before = 0, lr_after = 0;  // base learning rate of the first group, around the recovery
  const std::optional<data::StepSamples>& last_good;  // of the last step taken in this process
  int64_t last_good_step = 0;
};

struct Incident {
  std::string dir;
  std::string culprit = {};  // "digit-0058, position 17": bad_rows_text()
  bool names_a_row = false;
  std::string image = {};  // file of the one row at fault; empty: none, or no row alone is
};

/// Replays the batch, micro-batch by micro-batch: in the step's precision (loss, first bad
/// gradient, first module whose output is not finite) and in FP32 (loss); those that are not finite
/// also row by row. Moves no parameter, gradient, moment, sampler or generator.
Incident write_incident(Run& run, const StepOptions& options, const IncidentFacts& facts);

/// The folder of an incident, incidents/NAME: `json` as incident.json, the recipe, and the weights
/// as they are now, whose sha256 is added to `json`. Returns its path.
std::string write_incident_folder(const Run& run, const std::string& name, io::Json json);

}  // namespace lft::train
