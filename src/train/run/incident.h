// The folder a non-finite step leaves behind: what was computed on which samples, how that batch
// differs from the last good one, and what a replay of it finds. incidents/step-N/: incident.json,
// recipe.yaml, trainables.safetensors (the weights the step started from).
#pragma once
#include <optional>
#include <string>

#include "src/data/dataset.h"
#include "src/train/step/step.h"

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

/// Replays the batch, micro-batch by micro-batch: in the step's precision (loss, first bad
/// gradient, first module whose output is not finite) and in FP32 (loss). Moves no parameter,
/// gradient, moment, sampler or generator. Returns the folder.
std::string write_incident(const std::string& incidents_dir, const IncidentFacts& facts,
                           llava::Llava& model, const Optimizer& optimizer,
                           const data::Dataset& dataset, const StepOptions& options,
                           const std::string& recipe_text);

}  // namespace lft::train
