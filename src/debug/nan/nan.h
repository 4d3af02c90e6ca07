// The search for the first value that is not finite in a step of a run: each micro-batch runs once
// in the step's precision and once in FP32, with observers. Changes no parameter, gradient or
// generator.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "models/family/family.h"
#include "models/lora/inject.h"
#include "models/objective/objective.h"
#include "src/train/explain/non_finite_pass.h"
#include "src/train/step/bad_rows.h"

namespace lft::debug {

/// A step's batch, and everything else that its values depend on, except the weights.
struct HuntInput {
  std::vector<family::Batch> micro =
      {};  // micro-batches without a supervised token are skipped, as in training
  std::vector<std::vector<std::string>> ids =
      {};  // of the samples, by micro-batch, for messages; may be empty
  std::vector<lora::Trainable> trainables;
  uint64_t seed = 42;
  int64_t step = 1;  // from 1; with the micro-batch's number it determines the dropout masks
  at::ScalarType compute = at::kFloat;
  int64_t recompute = 0;
  double loss_scale = 1;
  data::StepSamples samples = {};  // the same rows, to run one by one; may be empty
  /// Above 0: the micro-batches are single rows of an evaluation of this number of rows. They run
  /// without dropout and without a backward pass.
  int64_t evaluated = 0;
  std::shared_ptr<const objective::Objective> objective = {std::shared_ptr<void>(),
                                                           &objective::supervised_nll()};
  double kl = 0;  // of the step, for an objective that uses it
};

struct MicroHunt {
  size_t micro = 0;
  train::PassReport pass;  // in the step's precision
  std::optional<train::PassReport>
      fp32;                         // only below FP32; with a backward pass if `pass` is not finite
  std::vector<double> differences;  // relative, by module row; empty without `fp32`
  /// The first row whose output in the compute dtype differs from FP32 by more than rounding
  /// explains.
  std::optional<size_t> parting;
  std::vector<train::Hint> hints;
};

/// A value that is not finite, or an invalid token, before anything is computed.
struct BadGiven {
  std::string name,
      text;  // "weight language_model.norm.weight", "1 NaN of 32, the first at flat index 7"
};

struct Hunt {
  at::ScalarType compute = at::kFloat;
  std::vector<BadGiven> given;
  std::vector<MicroHunt> micro;  // empty where a token id or a label is outside the vocabulary:
                                 // such a batch cannot run
  train::BadRows rows;           // of the micro-batches with a finding

  bool found() const;  // a finding that would make a training step fail
  /// The first micro-batch with a finding; nullptr: none.
  const MicroHunt* first() const;
};

Hunt hunt_non_finite(family::Model& model, const HuntInput& input);

/// ||a - b|| / ||b||; infinite if only one of them is finite, 0 if neither is.
double relative_difference(const train::ModuleRow& a, const train::ModuleRow& b);
/// The difference that rounding to `dtype` explains after `calls` module calls: four times the
/// random walk of errors of one unit each.
double explained_difference(at::ScalarType dtype, size_t calls);

}  // namespace lft::debug
