// From a recipe to everything a run needs, in two halves: what is checked while it is still cheap to fail, then the weights.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/data/dataset.h"
#include "src/data/loader.h"
#include "src/hf/adapter.h"
#include "src/hf/model_dir.h"
#include "src/recipe/recipe.h"
#include "src/text/tokenizer.h"
#include "src/train/optimizer.h"
#include "src/train/precision.h"
#include "src/train/schedule.h"

namespace lft {

/// Opened and checked; no weight is loaded and nothing is written.
struct RunInputs {
  Recipe recipe;
  at::Device device = at::kCPU;
  Precision precision;
  ModelDir model_dir;
  at::ScalarType base_dtype = at::kFloat;
  std::optional<AdapterDir> init_from;
  std::unique_ptr<Tokenizer> tokenizer;
  EncodeOptions encode;
  std::unique_ptr<Dataset> train, eval;  // eval may be null
  std::unique_ptr<Loader> loader;        // already decoding ahead
  int64_t steps_per_epoch = 0, total_steps = 0;
  std::vector<std::string> notices;
};
/// Cheapest checks first: the output directory, model headers, adapter headers, tokenizer, data rows.
RunInputs open_inputs(const Recipe& recipe);

/// A fresh run takes an output directory that holds none: kUsage otherwise, or when it lies inside an input; kResource when it cannot be
/// written.
void check_output_dir(const Recipe& recipe);

/// The model with its adapters, and what will be trained.
struct RunModel {
  Llava model{nullptr};
  LoraOptions lora;
  std::vector<Trainable> trainables;
  int64_t parameters = 0;  // of the whole model, adapters counted
  int64_t trainable_parameters = 0;
  int64_t adapted_layers = 0;
};
RunModel build_model(const RunInputs& inputs, std::vector<std::string>* notices);

AdamW make_optimizer(const Recipe& recipe, const std::vector<Trainable>& trainables);
/// The plan as lines of text: model, trainables, device, precision and its reason, data, steps.
std::vector<std::string> describe_plan(const RunInputs& inputs, const RunModel& model);

}  // namespace lft
