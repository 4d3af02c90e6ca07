// The model of a run, with its weights or only its shapes.
#pragma once
#include <string>
#include <vector>

#include "models/lora/inject.h"
#include "src/train/inputs/run_inputs.h"
#include "src/train/optim/optimizer.h"

namespace lft::train {

/// A module that was selected for training but whose gradient is always zero.
struct ExcludedModule {
  std::string name, reason;
};
struct Learnable {
  std::vector<lora::Trainable> kept;
  std::vector<ExcludedModule> excluded;  // one per module
};
/// Removes modules that no output depends on; their tensors no longer require a gradient.
Learnable never_learning(const family::ModelConfig& config,
                         const std::vector<lora::Trainable>& trainables);

/// The model with its adapters, and the trainables.
struct RunModel {
  family::Model model{nullptr};
  lora::LoraOptions lora;
  std::vector<lora::Trainable> trainables;
  std::vector<at::Tensor> initial = {};  // their values under the reference, for an objective that
                                         // uses the KL divergence (src/train/inputs/reference.h)
  std::vector<ExcludedModule> excluded;  // selected, but no output depends on them: not trained
  int64_t parameters = 0;                // of the whole model, including adapters
  int64_t trainable_parameters = 0;
  int64_t adapted_layers = 0;
  std::string base_digest;  // digest of every byte of the loaded weights; empty for random weights
};
/// Loads the weights.
RunModel build_model(const RunInputs& inputs);
/// The result of build_model() on the meta device: names, shapes, dtypes, adapters, trainables. No
/// weight is read.
RunModel run_shapes(const RunSettings& settings);

Optimizer make_optimizer(const recipe::Recipe& recipe,
                         const std::vector<lora::Trainable>& trainables);

/// For example "4.19 M of 7063.43 M parameters (0.06%)".
std::string trained_share(int64_t trainable, int64_t total);
/// The plan as lines of text: model, trainables, device, precision and its reason, data, steps.
/// `recovered`: the run continues after its FP32 recovery.
std::vector<std::string> describe_plan(const RunInputs& inputs, const RunModel& model,
                                       bool recovered = false);

}  // namespace lft::train
