// From a recipe to everything a run needs, in two halves: what is checked while it is still cheap to fail, then the weights.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/data/dataset.h"
#include "src/data/lengths.h"
#include "src/data/loader.h"
#include "src/hf/adapter.h"
#include "src/hf/model_dir.h"
#include "src/recipe/recipe.h"
#include "src/text/tokenizer.h"
#include "src/train/determinism.h"
#include "src/train/optimizer.h"
#include "src/train/precision.h"
#include "src/train/proof.h"
#include "src/train/schedule.h"

namespace lft {

/// Every how manyeth block is recomputed under a recipe's train.activation_checkpointing; 0: none.
int64_t recompute_every(const std::string& activation_checkpointing);
/// Whether inputs of recomputed blocks are to wait in host memory: asked for, and not on a CPU, where they do anyway.
bool offloads_activations(const Recipe& recipe, at::Device device);
/// Packed micro-batches on a GPU, their activations kept there.
bool uses_cuda_graphs(const Recipe& recipe, at::Device device);

/// Opened and checked; no weight is loaded and nothing is written.
struct RunInputs {
  Recipe recipe;
  at::Device device = at::kCPU;
  Precision precision;
  ModelDir model_dir;
  at::ScalarType base_dtype = at::kFloat;
  BaseStorage storage = BaseStorage::kDense;  // of the decoder's linear layers; the rest of the frozen weights has base_dtype
  std::optional<AdapterDir> init_from;
  std::unique_ptr<Tokenizer> tokenizer;
  EncodeOptions encode;
  std::unique_ptr<Dataset> train, eval;  // eval may be null
  std::vector<SampleLength> lengths;     // of the rows to train on, once sample_lengths() has measured them
  BadSamples bad;                        // among them
  std::string image_stamp;               // once image_stamp() has looked
  int64_t steps_per_epoch = 0, total_steps = 0;
  int64_t trainable_parameters = 0;  // by the model's shapes
  std::vector<std::string> notices;
};
/// Cheapest checks first: the output directory, model headers, adapter headers, tokenizer, data rows. With `resume` the output directory
/// may hold a run; behind one of its checkpoints lora.init_from is not opened again.
RunInputs open_inputs(const Recipe& recipe, bool resume = false);

/// inputs.lengths, measured by the first call; open_inputs makes it for data.group_by_length alone.
const std::vector<SampleLength>& sample_lengths(RunInputs& inputs);

/// Of the sizes and times of all images to train on, without reading them; looked up by the first call. Empty where no row names any.
const std::string& image_stamp(RunInputs& inputs);

LoaderOptions loader_options(const RunInputs& inputs);
/// Batches behind `first_step` optimizer steps, already decoding ahead.
std::unique_ptr<Loader> start_loader(const RunInputs& inputs, int64_t first_step);

/// kUsage when the output directory lies inside an input or, unless `resume`, holds a run; kResource when it cannot be written.
void check_output_dir(const Recipe& recipe, bool resume);

/// kResource unless `keep` + 1 checkpoints and the products fit on the disk of the output directory.
void check_disk_space(const RunInputs& inputs);

/// The model with its adapters, and what will be trained.
struct RunModel {
  Llava model{nullptr};
  LoraOptions lora;
  std::vector<Trainable> trainables;
  std::vector<ExcludedModule> excluded;  // chosen, but nothing depends on them: not trained
  int64_t parameters = 0;                // of the whole model, adapters counted
  int64_t trainable_parameters = 0;
  int64_t adapted_layers = 0;
};
RunModel build_model(const RunInputs& inputs, std::vector<std::string>* notices);

AdamW make_optimizer(const Recipe& recipe, const std::vector<Trainable>& trainables);
/// The plan as lines of text: model, trainables, device, precision and its reason, data, steps.
std::vector<std::string> describe_plan(const RunInputs& inputs, const RunModel& model);

}  // namespace lft
