// Opens and checks everything that a run needs before its weights, while a failure is still cheap.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "models/ops/weight/sharded.h"
#include "src/checkpoint/checkpoint.h"
#include "src/hf/adapter/adapter.h"
#include "src/hf/model_dir.h"
#include "src/train/inputs/run_data.h"
#include "src/train/inputs/run_settings.h"

namespace lft::train {

/// The files that the model is made from.
struct RunModelFiles {
  hf::ModelDir dir;
  std::optional<hf::AdapterDir> init_from;
  std::optional<checkpoint::Checkpoint> init_checkpoint;  // instead, until the model is made
  int64_t trainable_parameters = 0;                       // by the model's shapes
};

/// Opened and checked; no weight is loaded and nothing is written.
struct RunInputs : RunSettings {
  RunModelFiles model;
  RunData data;
  std::vector<std::string> notices;
  std::shared_ptr<ops::ShardMemory> shards = nullptr;  // of the shard group; null: not sharded
};
/// Cheapest checks first: the output directory, model headers, adapter headers, tokenizer, data
/// rows. With `resume` the output directory may hold a run; after one of its checkpoints
/// lora.init_from is not opened again. `writes`: else the output directory is another process's.
RunInputs open_inputs(const recipe::Recipe& recipe, bool resume = false, bool writes = true);

/// How the run's samples become batches.
data::BatchLayout batch_layout(const RunInputs& inputs);
/// Batches after `first_step` optimizer steps, already decoding ahead; of several ranks this one's
/// share, for which lengths must be measured where rows are packed.
std::unique_ptr<data::Loader> start_loader(const RunInputs& inputs, int64_t first_step);

}  // namespace lft::train
