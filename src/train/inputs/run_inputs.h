// Opens and checks everything that a run needs before its weights are loaded.
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

/// The files that the model is built from.
struct RunModelFiles {
  hf::ModelDir dir;
  std::optional<hf::AdapterDir> init_from;
  std::optional<checkpoint::Checkpoint> init_checkpoint;  // instead, until the model is built
  int64_t trainable_parameters = 0;                       // from the model's shapes
};

/// Opened and checked inputs; no weight is loaded and nothing is written.
struct RunInputs : RunSettings {
  RunModelFiles files;
  RunData data;
  std::vector<std::string> notices;
  std::shared_ptr<ops::ShardMemory> shards = nullptr;  // of the shard group; null: not sharded
};
/// Cheapest checks first: output directory, model headers, adapter headers, tokenizer, data rows.
/// With `resume` the output directory may contain a run; after one of its checkpoints
/// lora.init_from is not opened again. `writes` false: another process owns the output directory.
RunInputs open_inputs(const recipe::Recipe& recipe, bool resume = false, bool writes = true);

/// The layout that groups the run's samples into batches.
data::BatchLayout batch_layout(const RunInputs& inputs);
/// Batches after `first_step` optimizer steps, decoded ahead; with several ranks only this rank's
/// share, which needs measured lengths if rows are packed.
std::unique_ptr<data::Loader> start_loader(const RunInputs& inputs, int64_t first_step);

}  // namespace lft::train
