// The settings of a recipe on this machine and for this model: all that decides the passes and the
// number of steps. Plain and copyable, without samples or weights.
#pragma once
#include <c10/core/Device.h>

#include <string>
#include <vector>

#include "models/family/config.h"
#include "models/ops/weight/weight.h"
#include "src/data/sources/epoch_sources.h"
#include "src/recipe/recipe.h"
#include "src/train/machine/precision.h"

namespace lft::train {

struct RunSettings {
  recipe::Recipe recipe;
  at::Device device = at::kCPU;
  Precision precision;
  family::ModelConfig config;
  at::ScalarType base_dtype = at::kFloat;
  ops::BaseStorage storage = ops::BaseStorage::kDense;  // of the decoder's linear layers; the rest
                                                        // of the frozen weights has base_dtype
  int64_t max_tokens = 2048;                    // data.max_tokens, at most the model's positions
  int64_t rows = 0;                             // of data.train that an epoch takes
  std::vector<data::SourceShare> sources = {};  // of data.train, where it is a list
  int64_t steps_per_epoch = 0, total_steps = 0;
  int64_t rank = 0, ranks = 1;   // of the processes that share each step's micro-batches
  int64_t shard_group_size = 1;  // processes of this machine that shard the decoder's layers
  int64_t eval_reading = 0;  // SampleLength::reading, the most of the rows to evaluate on between
                             // steps, while the workers read on for the next one
};

/// Puts a number for train.grad_accum: auto: 1 without a train.global_batch, else as many passes as
/// make that many samples, but no more than leave an epoch of `rows` 32 steps, at least 1. The
/// global batch stays what was asked for.
void settle_accumulation(recipe::Recipe& recipe, int64_t rows);
/// Both numbers and the reason where a step has fewer samples than train.global_batch asks for;
/// else empty.
std::string judge_global_batch(const RunSettings& settings);

/// The steps that train.max_steps or train.epochs make.
int64_t planned_steps(const recipe::Recipe::Train& train, int64_t steps_per_epoch);

/// Every Nth block is recomputed under a recipe's train.activation_checkpointing; 0: none.
int64_t recompute_every(recipe::Choice<recipe::Checkpointing> checkpointing);
/// Whether inputs of recomputed blocks are to wait in host memory: asked for, and not on a CPU,
/// where they do anyway.
bool offloads_activations(const recipe::Recipe& recipe, at::Device device);
/// Packed micro-batches on a GPU, their activations kept there, of a family whose images are all of
/// one shape. `recipe`: the settings' own, or one that differs.
bool uses_cuda_graphs(const recipe::Recipe& recipe, const RunSettings& settings);
/// The notice of a run whose passes are not recorded because of its family's images or its sharded
/// base; else empty.
std::string graphs_left_out(const recipe::Recipe& recipe, const RunSettings& settings);

}  // namespace lft::train
