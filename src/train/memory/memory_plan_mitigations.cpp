#include <algorithm>
#include <functional>

#include "models/lora/registry.h"
#include "src/base/errors.h"
#include "src/base/text.h"
#include "src/hf/model_dir.h"
#include "src/hf/weights_load.h"
#include "src/train/inputs/model_shapes.h"
#include "src/train/memory/memory_plan.h"
#include "src/train/optim/rules.h"

namespace lft::train {
namespace {

constexpr double kLeastShare = 0.01;  // of the peak
constexpr size_t kChangeWidth = 40;

RunSettings changed_settings(RunSettings settings, const recipe::Recipe& recipe) {
  settings.recipe = recipe;
  settings.storage = hf::base_storage(recipe.model.base_dtype.word());
  if (settings.storage != ops::BaseStorage::kDense) settings.base_dtype = at::kBFloat16;
  return settings;
}

struct RecipeChange {
  std::string text, cost;
  std::function<void(recipe::Recipe&)> apply;
};

/// Possible changes, the cheapest first.
std::vector<RecipeChange> possible_changes(const RunSettings& settings, const MemoryPlan& plan) {
  const recipe::Recipe& recipe = settings.recipe;
  const bool gpu = !settings.device.is_cpu();
  std::vector<RecipeChange> changes;
  if (!recipe.data.group_by_length) {
    changes.push_back({"data.group_by_length=true",
                       "batches of like lengths are less mixed; costs nothing else",
                       [](recipe::Recipe& r) { r.data.group_by_length = true; }});
  }
  const bool reads_much = plan.bytes_of(kImagesRead) > 0.05 * plan.peak;
  for (int64_t workers = recipe.data.workers / 2; reads_much && workers > 0; workers /= 2) {
    changes.push_back({"data.workers=" + std::to_string(workers),
                       "fewer images are read ahead; fast steps may wait for them",
                       [workers](recipe::Recipe& r) { r.data.workers = workers; }});
  }
  if (plan.bytes_of(kFeatures) > 0) {
    changes.push_back({"data.image_cache_mb=0",
                       "images pass the vision tower again in each epoch and evaluation",
                       [](recipe::Recipe& r) { r.data.image_cache_mb = 0; }});
  }
  if (const std::string& smaller = find_rule(recipe.optim.name).in_8_bits; !smaller.empty()) {
    changes.push_back({"optim.name=" + smaller, "the moments are rounded to 8 bits",
                       [smaller](recipe::Recipe& r) { r.optim.name = smaller; }});
  }
  const int64_t longest = settings.max_tokens;  // a budget must fit the longest sample
  const int64_t budget = recipe.train.max_tokens_per_step == 0
                             ? longest
                             : std::max(longest, recipe.train.max_tokens_per_step / 2);
  if (budget != recipe.train.max_tokens_per_step) {
    changes.push_back({"train.max_tokens_per_step=" + std::to_string(budget),
                       "the same updates without padding; other dropout masks",
                       [budget](recipe::Recipe& r) { r.train.max_tokens_per_step = budget; }});
  }
  for (int64_t batch = recipe.train.batch_size; batch > 1 && batch % 2 == 0;) {
    batch /= 2;
    const int64_t accum = recipe.train.grad_accum * (recipe.train.batch_size / batch);
    if (accum > recipe::kMostInAStep) break;
    changes.push_back({"train.batch_size=" + std::to_string(batch) +
                           " train.grad_accum=" + std::to_string(accum) +
                           (recipe.train.global_batch == 0
                                ? ""
                                : " train.global_batch=" + std::to_string(batch * accum)),
                       "the same updates from smaller products, which are less efficient",
                       [batch, accum](recipe::Recipe& r) {
                         r.train.batch_size = batch;
                         r.train.grad_accum = accum;
                       }});
  }
  if (uses_cuda_graphs(recipe, settings)) {
    changes.push_back({"train.cuda_graphs=off",
                       "every kernel is launched by itself, which short passes feel",
                       [](recipe::Recipe& r) { r.train.cuda_graphs = recipe::CudaGraphs::kOff; }});
  }
  if (gpu && !recipe.optim.offload && make_rule(recipe.optim)->in_pieces()) {
    changes.push_back({"optim.offload=true", "the moments cross the bus in every step",
                       [](recipe::Recipe& r) { r.optim.offload = true; }});
  }
  if (could_store_nf4(recipe)) {
    changes.push_back(
        {"model.base_dtype=nf4",
         "the decoder's frozen weights are rounded to 4 bits and widened in every product",
         [](recipe::Recipe& r) { r.model.base_dtype = recipe::BaseDtype::kNf4; }});
  }
  using recipe::Checkpointing;
  const std::vector<std::pair<recipe::Choice<Checkpointing>, std::string>> recomputations = {
      {Checkpointing::kEvery4, "about 8% more compute"},
      {Checkpointing::kEvery2, "about 17% more compute"},
      {Checkpointing::kBlock, "about 33% more compute"}};
  const int64_t now = recompute_every(recipe.train.activation_checkpointing);
  for (const auto& [blocks, cost] : recomputations) {
    if (now > 0 && recompute_every(blocks) >= now) continue;
    changes.push_back(
        {"train.activation_checkpointing=" + blocks.word(), cost,
         [blocks = blocks](recipe::Recipe& r) { r.train.activation_checkpointing = blocks; }});
  }
  if (gpu && !recipe.train.activation_offload) {
    changes.push_back({"train.activation_checkpointing=block train.activation_offload=true",
                       "about 33% more compute, and each block's input crosses the bus twice",
                       [](recipe::Recipe& r) {
                         r.train.activation_checkpointing = Checkpointing::kBlock;
                         r.train.activation_offload = true;
                       }});
  }
  return changes;
}

}  // namespace

bool could_store_nf4(const recipe::Recipe& recipe) {
  return recipe.model.base_dtype != recipe::BaseDtype::kNf4 &&
         !trains_whole(recipe, "language_model.") &&
         !lora::find_variant(recipe.lora.variant).changes_weight;
}

std::string filled_to(std::string text, size_t width) {
  text.resize(std::max(width, text.size()), ' ');
  return text;
}

std::vector<Mitigation> mitigations(const RunSettings& settings,
                                    const std::vector<data::SampleLength>& lengths,
                                    const MemoryPlan& plan) {
  std::vector<Mitigation> result;
  for (const RecipeChange& change : possible_changes(settings, plan)) {
    recipe::Recipe recipe = settings.recipe;
    change.apply(recipe);
    const RunSettings changed = changed_settings(settings, recipe);
    MemoryPlan other = plan_memory(changed, worst_micro_batch(changed, lengths));
    other.free = plan.free;
    const bool helps = other.fits() && !plan.fits();
    if (plan.peak - other.peak < kLeastShare * plan.peak && !helps) continue;
    result.push_back({.change = change.text,
                      .saves = plan.peak - other.peak,
                      .cost = change.cost,
                      .fits = other.fits()});
  }
  return result;
}

std::vector<std::string> describe_memory(const MemoryPlan& plan, const MicroBatchShape& worst,
                                         const data::Dataset& dataset,
                                         const std::vector<Mitigation>& changes) {
  std::vector<std::string> ids;
  for (const int64_t index : worst.indices) ids.push_back(dataset.id(index));
  const std::string rows = worst.rows() > std::ssize(worst.samples) ? " pairs" : " rows";
  std::vector<std::string> lines = {
      "memory     predicted for the largest micro-batch of the run, of step " +
      std::to_string(worst.step) + ": " + std::to_string(worst.samples.size()) + rows +
      (worst.packed ? " packed, of up to " : " of up to ") + std::to_string(worst.longest()) +
      " tokens, " + std::to_string(worst.images()) + " images, " +
      std::to_string(worst.supervised()) + " supervised tokens (" + join_names(ids, 4) + ")"};
  for (const MemoryPart& part : plan.parts)
    lines.push_back("           " + filled_to(part.name, kChangeWidth) + format_bytes(part.bytes));
  lines.push_back("           " + filled_to("peak (" + plan.moment + ")", kChangeWidth) +
                  format_bytes(plan.peak) + "; " + format_bytes(plan.free) + " free: " +
                  (plan.peak <= plan.free ? "it fits"
                   : plan.fits()          ? "it fits, with fewer CUDA graphs"
                                          : "it does not fit"));
  if (!changes.empty()) lines.emplace_back("           settings that need less:");
  for (const Mitigation& change : changes) {
    const std::string saves = "saves " + format_bytes(change.saves) +
                              (change.fits ? ", fits" : ", does not fit"),
                      cost = "             " + change.cost;
    if (change.change.size() < kChangeWidth) {
      lines.push_back("           " + filled_to(change.change, kChangeWidth) + saves);
    } else {
      lines.push_back("           " + change.change);
      lines.push_back("           " + filled_to("", kChangeWidth) + saves);
    }
    lines.push_back(cost);
  }
  return lines;
}

}  // namespace lft::train
