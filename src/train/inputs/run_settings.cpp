#include "src/train/inputs/run_settings.h"

#include <algorithm>

#include "src/train/machine/cuda_graph.h"

namespace lft::train {

void settle_accumulation(recipe::Recipe& recipe, int64_t rows) {
  constexpr int64_t kFewestSteps = 32;  // an epoch
  recipe::Recipe::Train& train = recipe.train;
  if (train.grad_accum > 0) return;
  train.grad_accum =
      std::max<int64_t>(1, std::min(train.global_batch, rows / kFewestSteps) / train.batch_size);
  if (train.global_batch > 0) train.global_batch = train.batch_size * train.grad_accum;
}

int64_t recompute_every(const std::string& activation_checkpointing) {
  if (activation_checkpointing == "none") return 0;
  return activation_checkpointing == "block"
             ? 1
             : std::stoll(activation_checkpointing.substr(std::string("every-").size()));
}

bool offloads_activations(const recipe::Recipe& recipe, at::Device device) {
  return recipe.train.activation_offload && !device.is_cpu();
}

namespace {

/// But for what the family's images are, and for who holds the base.
bool could_record(const recipe::Recipe& recipe, const RunSettings& settings) {
  return recipe.train.cuda_graphs == "auto" && records_graphs(settings.device) &&
         recipe.train.max_tokens_per_step > 0 && !recipe.train.activation_offload;
}

}  // namespace

bool uses_cuda_graphs(const recipe::Recipe& recipe, const RunSettings& settings) {
  return could_record(recipe, settings) && settings.holders == 1 &&
         settings.config.family->unlike_passes().empty();
}

std::string graphs_left_out(const recipe::Recipe& recipe, const RunSettings& settings) {
  const family::Family& family = *settings.config.family;
  const std::string unlike = family.unlike_passes();
  if (!could_record(recipe, settings)) return {};
  if (settings.holders > 1)
    return "train.shard: base: layers are gathered as a pass comes to them, so that none is "
           "recorded as a CUDA graph";
  if (unlike.empty()) return {};
  return "train.cuda_graphs: " + unlike + ", so that no two passes are alike: none is recorded";
}

}  // namespace lft::train
