#include "src/train/inputs/run_settings.h"

#include <algorithm>

#include "models/family/family.h"
#include "src/recipe/pair_words.h"
#include "src/train/machine/cuda_graph.h"

namespace lft::train {

namespace {

constexpr int64_t kFewestSteps = 32;  // per epoch

}  // namespace

void settle_accumulation(recipe::Recipe& recipe, int64_t rows) {
  recipe::Recipe::Train& train = recipe.train;
  if (train.grad_accum > 0) return;
  train.grad_accum =
      std::max<int64_t>(1, std::min(train.global_batch, rows / kFewestSteps) / train.batch_size);
}

std::string judge_global_batch(const RunSettings& settings) {
  const recipe::Recipe::Train& train = settings.recipe.train;
  const int64_t samples = train.batch_size * train.grad_accum;
  if (samples >= train.global_batch) return "";
  const bool by_rows = settings.rows / kFewestSteps < train.global_batch;
  return "train.global_batch is lowered from " + std::to_string(train.global_batch) + " to " +
         recipe::samples_text(settings.recipe, samples) + " a step, " +
         (by_rows ? "so that an epoch of " + recipe::rows_text(settings.recipe, settings.rows) +
                        " has " + std::to_string(kFewestSteps) + " steps where it can"
                  : "whole passes of train.batch_size: " + std::to_string(train.batch_size)) +
         ": a learning rate that suits the larger step may be too high for this one";
}

int64_t planned_steps(const recipe::Recipe::Train& train, int64_t steps_per_epoch) {
  return train.max_steps > 0 ? train.max_steps : train.epochs * steps_per_epoch;
}

int64_t recompute_every(recipe::Choice<recipe::Checkpointing> checkpointing) {
  switch (checkpointing.value) {
    case recipe::Checkpointing::kNone:
      return 0;
    case recipe::Checkpointing::kBlock:
      return 1;
    case recipe::Checkpointing::kEvery2:
      return 2;
    case recipe::Checkpointing::kEvery4:
      return 4;
  }
  return 0;
}

bool offloads_activations(const recipe::Recipe& recipe, at::Device device) {
  return recipe.train.activation_offload && !device.is_cpu();
}

namespace {

/// Ignores the shape of the family's images and the sharding of the base.
bool could_record(const recipe::Recipe& recipe, const RunSettings& settings) {
  return recipe.train.cuda_graphs == recipe::CudaGraphs::kAuto && records_graphs(settings.device) &&
         recipe.objective.name == recipe::ObjectiveName::kSft &&
         recipe.train.max_tokens_per_step > 0 && !recipe.train.activation_offload;
}

/// Why passes over equal token counts differ; empty: they do not.
std::string unlike_passes(const recipe::Recipe& recipe, const RunSettings& settings) {
  if (settings.config.text.follows_length(recipe.data.max_tokens))
    return "angles or masks of the decoder depend on how long rows are";
  return settings.config.family->why_not_graphable;
}

}  // namespace

bool uses_cuda_graphs(const recipe::Recipe& recipe, const RunSettings& settings) {
  return could_record(recipe, settings) && settings.shard_group_size == 1 &&
         unlike_passes(recipe, settings).empty();
}

std::string graphs_left_out(const recipe::Recipe& recipe, const RunSettings& settings) {
  const std::string unlike = unlike_passes(recipe, settings);
  if (!could_record(recipe, settings)) return {};
  if (settings.shard_group_size > 1)
    return "train.shard: base: layers are gathered as a pass comes to them, so that none is "
           "recorded as a CUDA graph";
  if (unlike.empty()) return {};
  return "train.cuda_graphs: " + unlike + ", so that no two passes are alike: none is recorded";
}

}  // namespace lft::train
