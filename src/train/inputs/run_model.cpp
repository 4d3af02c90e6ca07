#include "src/train/inputs/run_model.h"

#include <ATen/Parallel.h>

#include <algorithm>

#include "models/family/model.h"
#include "models/lora/trained_modules.h"
#include "src/base/phase.h"
#include "src/base/text.h"
#include "src/hf/adapter/adapter_load.h"
#include "src/hf/weights.h"
#include "src/hf/weights_load.h"
#include "src/recipe/pair_words.h"
#include "src/train/inputs/init_adapter.h"
#include "src/train/inputs/init_checkpoint.h"
#include "src/train/inputs/kept_features.h"
#include "src/train/inputs/model_shapes.h"
#include "src/train/machine/device.h"
#include "src/train/optim/rules.h"

namespace lft::train {
namespace {

/// Adds the adapters, new ones if none are given, and selects the trainables.
void make_trained(RunModel& run, const recipe::Recipe& recipe, const hf::AdapterDir* init_from) {
  const std::vector<lora::LinearSite> sites = adapted_sites(recipe, *run.model, nullptr);
  run.lora = lora_options(recipe, sites);
  run.adapted_layers = static_cast<int64_t>(sites.size());
  if (init_from != nullptr) {
    hf::AdapterDir dir = *init_from;
    dir.lora.dropout = recipe.lora.dropout;
    hf::load_adapter(run.model, dir);
  }
  if (!sites.empty() && (init_from == nullptr || init_from->parts)) {
    lora::inject_lora(sites, run.lora, static_cast<uint64_t>(recipe.train.seed));
  }
  Learnable learnable =
      never_learning(run.model->config, lora::make_trainable(*run.model, recipe.full));
  run.trainables = std::move(learnable.kept);
  run.excluded = std::move(learnable.excluded);
  for (const at::Tensor& parameter : run.model->parameters()) run.parameters += parameter.numel();
  for (const lora::Trainable& trainable : run.trainables)
    run.trainable_parameters += trainable.tensor.numel();
}

std::string millions(int64_t count) {
  char text[32];
  std::snprintf(text, sizeof text, count < 100'000 ? "%.4f M" : "%.2f M",
                static_cast<double>(count) / 1e6);
  return text;
}

}  // namespace

Learnable never_learning(const family::ModelConfig& config,
                         const std::vector<lora::Trainable>& trainables) {
  const std::vector<std::string> unused = config.family->vision(config).unused_modules;
  const auto is_unused = [&](const std::string& name) {
    return std::ranges::any_of(
        unused, [&](const std::string& module) { return name.starts_with(module + "."); });
  };
  const std::string reason = config.family->vision(config).unused_reason;
  Learnable result;
  std::vector<lora::Trainable> left_out;
  for (const lora::Trainable& trainable : trainables) {
    if (is_unused(trainable.name)) {
      at::Tensor(trainable.tensor).set_requires_grad(false);
      left_out.push_back(trainable);
    } else {
      result.kept.push_back(trainable);
    }
  }
  for (const lora::TrainedModule& module : lora::trained_modules(left_out))
    result.excluded.push_back({module.name, reason});
  return result;
}

RunModel build_model(const RunInputs& inputs) {
  const recipe::Recipe& recipe = inputs.recipe;
  const Phase phase("loading the model", 0, "after the model is loaded");
  RunModel run;
  const hf::BaseForm base{inputs.storage, inputs.shards};
  if (recipe.model.init == recipe::ModelInit::kRandom) {
    run.model = hf::random_model(inputs.config, inputs.base_dtype, inputs.device,
                                 static_cast<uint64_t>(recipe.train.seed), base);
  } else {
    run.model = hf::load_model(inputs.files.dir, inputs.base_dtype, inputs.device,
                               recipe.model.check_weights, base, &run.base_digest);
  }
  run.model->neftune_alpha = recipe.optim.neftune_alpha;
  make_trained(run, recipe, inputs.files.init_from ? &*inputs.files.init_from : nullptr);
  if (inputs.files.init_checkpoint) {
    copy_stored(inputs.files.init_checkpoint->trainables, named_targets(run.trainables),
                ErrorKind::kInput, recipe.lora.init_from);
  }
  if (inputs.device.is_cpu() &&
      std::ranges::all_of(run.trainables, is_of_decoder, &lora::Trainable::name))
    run.model->feature_source = std::make_shared<KeptFeatures>(recipe.data.image_cache_mb << 20);
  return run;
}

RunModel run_shapes(const RunSettings& settings) {
  RunModel run;
  run.model = settings.config.family->build(settings.config, settings.base_dtype,
                                            at::Device(at::kMeta), ops::BaseStorage::kDense);
  make_trained(run, settings.recipe, /*init_from=*/nullptr);
  return run;
}

Optimizer make_optimizer(const recipe::Recipe& recipe,
                         const std::vector<lora::Trainable>& trainables) {
  const bool on_host =
      std::all_of(trainables.begin(), trainables.end(),
                  [](const lora::Trainable& each) { return each.tensor.is_cpu(); });
  return Optimizer(trainables,
                   param_groups(trainables, recipe.optim.lr, recipe.optim.projector_lr,
                                recipe.optim.lora_plus_ratio, recipe.optim.vision_lr),
                   make_rule(recipe.optim), {.offload = recipe.optim.offload && !on_host});
}

std::string trained_share(int64_t trainable, int64_t total) {
  char percent[32];
  std::snprintf(percent, sizeof percent, "%.2f%%",
                total == 0 ? 0 : 100 * static_cast<double>(trainable) / static_cast<double>(total));
  return millions(trainable) + " of " + millions(total) + " parameters (" + percent + ")";
}

std::vector<std::string> describe_plan(const RunInputs& inputs, const RunModel& model,
                                       bool recovered) {
  const recipe::Recipe& recipe = inputs.recipe;
  std::string trained = trained_share(model.trainable_parameters, model.parameters);
  if (model.adapted_layers > 0) {
    trained += ": " + recipe.lora.variant + " of rank " + std::to_string(recipe.lora.rank) +
               (model.lora.own.empty() ? "" : " and others (lora.rank_pattern, alpha_pattern)") +
               " on " + std::to_string(model.adapted_layers) + " layers";
  }
  if (!recipe.full.empty())
    trained += std::string(model.adapted_layers > 0 ? ", " : ": ") + "whole: " + join(recipe.full);
  const std::string asked = compute_name(inputs.precision.compute);
  const int64_t global_batch = recipe.train.batch_size * recipe.train.grad_accum;
  return {
      "model      " + recipe.model.path + ", frozen weights in " +
          (inputs.storage == ops::BaseStorage::kDense ? ""
                                                      : recipe.model.base_dtype.word() + " and ") +
          compute_name(inputs.base_dtype) +
          (inputs.shard_group_size == 1
               ? ""
               : ", the decoder's layers sharded over " + std::to_string(inputs.shard_group_size) +
                     " processes"),
      "trains     " + trained,
      "device     " + inputs.device.str() +
          (inputs.device.is_cpu()
               ? " (" + cpu_model() + ", " + std::to_string(at::get_num_threads()) + " threads)"
               : ""),
      "precision  " + (recovered ? "fp32 (since the recovery; it began in " + asked + ")"
                                 : asked + " (" + inputs.precision.reason + ")"),
      "data       " + recipe::rows_text(recipe, inputs.data.train->size()) + " to train on" +
          (inputs.data.eval ? ", " + std::to_string(inputs.data.eval->size()) + " to evaluate"
                            : ""),
      "steps      " + std::to_string(inputs.total_steps) + " of " +
          recipe::samples_text(recipe, global_batch) + " (" +
          std::to_string(inputs.steps_per_epoch) + " an epoch)"};
}

}  // namespace lft::train
