// The settings of a recipe on this machine and for this model, which determine the passes and the
// number of steps. Copyable, without samples or weights.
#pragma once
#include <c10/core/Device.h>

#include <string>
#include <vector>

#include "models/family/config.h"
#include "models/ops/weight/weight.h"
#include "src/data/sources/epoch_sources.h"
#include "src/data/store/sample.h"
#include "src/recipe/recipe.h"
#include "src/train/machine/precision.h"

namespace lft::train {

struct RunSettings {
  recipe::Recipe recipe;
  at::Device device = at::kCPU;
  Precision precision;
  family::ModelConfig config;
  at::ScalarType base_dtype = at::kFloat;
  ops::BaseStorage storage = ops::BaseStorage::kDense;  // of the decoder's linear layers; other
                                                        // frozen weights have base_dtype
  bool shares_prompts = false;  // pairs are packed, and the prompt of both sides is computed once
  int64_t max_tokens = 2048;    // data.max_tokens, at most the model's positions
  int64_t rows = 0;             // of data.train in an epoch
  std::vector<data::SourceShare> sources = {};  // of data.train, if it is a list
  int64_t steps_per_epoch = 0, total_steps = 0;
  int64_t rank = 0, ranks = 1;   // of the processes that share each step's micro-batches
  int64_t shard_group_size = 1;  // processes of this machine that shard the decoder's layers
  // The maximum of each number over the rows that are evaluated between steps, while the workers
  // read ahead for the next step; 0 without such rows.
  data::SampleLength evaluated = {};
  int64_t evaluated_rows = 0;
};

/// Resolves train.grad_accum: auto: 1 without a train.global_batch, else the number of passes for
/// that many samples, limited so that an epoch of `rows` has at least 32 steps; at least 1. The
/// global batch stays as requested.
void settle_accumulation(recipe::Recipe& recipe, int64_t rows);
/// Both numbers and the reason if a step has fewer
/// samples than train.global_batch; else empty.
std::string judge_global_batch(const RunSettings& settings);

/// The number of steps from train.max_steps or train.epochs.
int64_t planned_steps(const recipe::Recipe::Train& train, int64_t steps_per_epoch);

/// Every Nth block is recomputed under a recipe's train.activation_checkpointing; 0: none.
int64_t recompute_every(recipe::Choice<recipe::Checkpointing> checkpointing);
/// Whether inputs of recomputed blocks are offloaded to host memory: requested, and not on a CPU,
/// where they are in host memory anyway.
bool offloads_activations(const recipe::Recipe& recipe, at::Device device);
/// True for packed micro-batches on a GPU without activation offload, if the family's images all
/// have one shape. `recipe`: the settings' own or a variation.
bool uses_cuda_graphs(const recipe::Recipe& recipe, const RunSettings& settings);
/// The notice for a run whose passes are not recorded because of its family's images or its sharded
/// base; else empty.
std::string graphs_left_out(const recipe::Recipe& recipe, const RunSettings& settings);

}  // namespace lft::train
