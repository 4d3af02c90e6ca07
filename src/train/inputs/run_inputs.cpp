#include "src/train/inputs/run_inputs.h"

#include <ATen/ceil_div.h>

#include "models/family/model.h"
#include "models/lora/inject_select.h"
#include "models/lora/registry.h"
#include "models/ops/weight/fp8.h"
#include "src/base/text.h"
#include "src/checkpoint/checkpoint.h"
#include "src/hf/adapter/adapter_notes.h"
#include "src/hf/adapter/adapter_tie.h"
#include "src/hf/adapter/missing_layers.h"
#include "src/hf/weights_load.h"
#include "src/train/inputs/init_adapter.h"
#include "src/train/inputs/init_checkpoint.h"
#include "src/train/inputs/model_shapes.h"
#include "src/train/inputs/output_dir.h"
#include "src/train/inputs/recipe_encoding.h"
#include "src/train/inputs/run_objective.h"
#include "src/train/machine/determinism.h"
#include "src/train/machine/device.h"
#include "src/train/optim/rules.h"

namespace lft::train {
namespace {

/// FP8 products need sides that are certain multiples; the first other layer is reported.
void check_fp8_shapes(family::ModelImpl& model) {
  for (const lora::LinearSite& site : lora::linear_sites(model)) {
    const int64_t out = site.layer->outputs(), in = site.layer->weight.size(1);
    if (!in_decoder_layer(site.name) ||
        (out % ops::kFp8Multiple == 0 && in % ops::kFp8Multiple == 0))
      continue;
    refuse(ErrorKind::kUsage, "the model has a layer that FP8 products cannot take",
           "model.base_dtype: fp8, layer " + site.name,
           std::to_string(out) + " outputs, " + std::to_string(in) + " inputs",
           "multiples of " + std::to_string(ops::kFp8Multiple),
           "set model.base_dtype to bf16 or nf4");
  }
}

/// Sharded weights of the decoder's layers cannot be trained.
void check_shards(const recipe::Recipe& recipe) {
  if (recipe.train.shard == recipe::Shard::kNone || !trains_whole(recipe, "language_model."))
    return;
  refuse(ErrorKind::kUsage, "a sharded base cannot be trained", "full",
         join(recipe.full) + " with train.shard: base", "adapters on the llm",
         "use lora.targets for the llm, or set train.shard to none");
}

/// A variant that first modifies its layers' weights needs them dense and unsharded.
void check_dense(const RunSettings& settings, const std::vector<lora::LinearSite>& sites) {
  const bool sharded = settings.recipe.train.shard != recipe::Shard::kNone;
  if ((settings.storage == ops::BaseStorage::kDense && !sharded) ||
      !lora::find_variant(settings.recipe.lora.variant).changes_weight)
    return;
  for (const lora::LinearSite& site : sites) {
    if (!in_decoder_layer(site.name)) continue;
    if (settings.storage == ops::BaseStorage::kDense) {
      refuse(ErrorKind::kUsage,
             "lora.variant: " + settings.recipe.lora.variant +
                 " changes the weights of its layers, and these are sharded",
             "train.shard, layer " + site.name, settings.recipe.train.shard.word(), "none",
             "set train.shard to none, or lora.variant: lora");
    }
    refuse(ErrorKind::kUsage,
           "lora.variant: " + settings.recipe.lora.variant +
               " changes the weights of its layers, and these are quantized",
           "model.base_dtype, layer " + site.name, settings.recipe.model.base_dtype.word(),
           "auto, bf16, fp16 or fp32", "set another model.base_dtype, or lora.variant: lora");
  }
}

/// data.shuffle: blocks permutes full blocks only; the rows after the last one stay last.
std::string judge_blocks(const RunSettings& settings) {
  const recipe::Recipe::Data& data = settings.recipe.data;
  const int64_t blocks = settings.rows / data::kRowsOfABlock;
  if (!data.shuffle.rows || !data.shuffle.blocks || data.group_by_length || blocks > 1) return "";
  return "data.shuffle: blocks: " + std::to_string(settings.rows) +
         " rows are less than two blocks of " + std::to_string(data::kRowsOfABlock) +
         ": nothing is shuffled, every epoch reads them in the order of the file; set "
         "data.shuffle to true";
}

/// lora.init_from: an adapter, or a checkpoint of another run.
void open_init(const recipe::Recipe& recipe, const std::vector<lora::LinearSite>& sites,
               RunModelFiles* model, std::vector<std::string>* notices) {
  if (is_checkpoint_folder(recipe.lora.init_from)) {
    model->init_checkpoint = open_init_checkpoint(recipe, model->dir);
    notices->push_back("starting from the weights of step " +
                       std::to_string(model->init_checkpoint->step) + " of run " +
                       model->init_checkpoint->run_id);
    return;
  }
  if (recipe.optim.init_moments) {
    refuse(ErrorKind::kUsage, "an adapter has no moments to start with",
           "optim.init_moments, lora.init_from", recipe.lora.init_from,
           "a checkpoint: <output_dir>/checkpoints/step-<n>",
           "name the run's checkpoint in lora.init_from, or set optim.init_moments to false");
  }
  model->init_from = hf::AdapterDir::open(recipe.lora.init_from);
  if (sites.empty() && !model->init_from->parts) {
    refuse(ErrorKind::kUsage, "no layer of the run has an adapter", "lora.init_from",
           recipe.lora.init_from,
           "lora.targets, or parts or a checkpoint of a run that trained the same",
           "remove lora.init_from, or name such a folder");
  }
  hf::check_adapter_base(*model->init_from, model->dir);
  if (hf::unties(*model->init_from, model->dir.config)) {
    refuse(ErrorKind::kInput,
           "the adapter unties the LM head from the embedding, which lft trains as one",
           "lora.init_from: " + recipe.lora.init_from,
           "one of the two changed without the other, over a base with tie_word_embeddings",
           "neither changed, or the same numbers for both",
           "lft merge --adapter " + shell_word(recipe.lora.init_from) + " --model " +
               shell_word(recipe.model.path) +
               " --out MODEL; then set model.path to MODEL and remove lora.init_from");
  }
  check_init_adapter(*model->init_from, recipe, sites);
  hf::warn_of_missing_layers(*model->init_from, model->dir.config);
  if (model->init_from->inference_mode && !model->init_from->parts)
    notices->push_back("the adapter says inference_mode: true; it is unfrozen for training");
}

/// Counts what will be trained, from shapes alone.
int64_t count_trainable(const recipe::Recipe& recipe, family::ModelImpl& shapes,
                        const std::vector<lora::LinearSite>& sites) {
  int64_t count = 0;
  const lora::LoraOptions options = lora_options(recipe, sites);
  for (const lora::LinearSite& site : sites) {
    const int64_t rank = options.of(site.name).rank;
    for (const lora::AdapterTensor& tensor : lora::find_variant(recipe.lora.variant).tensors)
      count += c10::multiply_integers(
          shape_of(tensor, site.layer->weight.sizes(), rank, site.layer->experts));
  }
  for (const auto& parameter : shapes.named_parameters()) {
    if (trains_whole(recipe, parameter.key())) count += parameter.value().numel();
  }
  return count;
}

/// kUsage if an objective that compares the rows of a step has a step of one row.
void check_last_step(const RunInputs& inputs) {
  const int64_t in_a_step = rows_of_step(inputs.recipe), last = inputs.rows % in_a_step;
  const bool reaches_last = last == 1 && inputs.total_steps >= inputs.steps_per_epoch;
  if (!make_objective(inputs.recipe)->uses_kl() || (in_a_step > 1 && !reaches_last)) return;
  refuse(ErrorKind::kUsage, "a step of one row, where kto compares each row with the next one",
         "the last step of an epoch",
         std::to_string(inputs.rows) + " rows in steps of " + std::to_string(in_a_step),
         "at least two rows in each step",
         "choose another train.batch_size or train.grad_accum, or leave one row out");
}

}  // namespace

RunInputs open_inputs(const recipe::Recipe& asked, bool resume, bool writes) {
  RunInputs inputs;
  recipe::Recipe& recipe = inputs.recipe;
  recipe = asked;
  if (writes) check_output_dir(recipe, resume);
  make_rule(recipe.optim);  // rejects unsupported settings before anything is opened
  inputs.files.dir = recipe.model.init == recipe::ModelInit::kRandom
                         ? hf::ModelDir::config_only(recipe.model.path)
                         : hf::ModelDir::open(recipe.model.path);
  inputs.config = inputs.files.dir.config;
  if (const std::string chosen = settle_data(recipe, recipe.model.path, inputs.config);
      !chosen.empty())
    inputs.notices.push_back(chosen);
  std::unique_ptr<text::Tokenizer> tokenizer = text::Tokenizer::load(
      recipe.model.path);  // before the device is opened and threads start: it may fork a probe
  inputs.device = default_device();
  seed_generators(static_cast<uint64_t>(recipe.train.seed));
  inputs.precision = choose_precision(recipe.precision.compute, device_facts(inputs.device));
  if (!inputs.precision.notice.empty()) inputs.notices.push_back(inputs.precision.notice);
  const std::string unpacked = packing_fault(inputs.precision.compute, inputs.config.text.head_dim,
                                             device_facts(inputs.device));
  if (recipe.train.max_tokens_per_step > 0 && !unpacked.empty()) {
    refuse(ErrorKind::kUsage, "packed passes do not run on this GPU", "train.max_tokens_per_step",
           unpacked, "0", "set train.max_tokens_per_step to 0, or precision.compute to fp32");
  }
  inputs.shares_prompts = learns_from_pairs(recipe) && unpacked.empty();
  if (const std::string graphs = graphs_left_out(recipe, inputs); !graphs.empty())
    inputs.notices.push_back(graphs);
  if (const std::string line = describe_balance(recipe, inputs.config.text); !line.empty())
    inputs.notices.push_back(line);
  if (inputs.device.is_cpu() && recipe.optim.offload)
    inputs.notices.push_back("optim.offload: on a CPU the moments are in host memory already");
  if (inputs.device.is_cpu() && recipe.train.activation_offload) {
    inputs.notices.push_back(
        "train.activation_offload: on a CPU activations are in host memory already");
  }
  std::string notice;
  inputs.base_dtype = hf::choose_base_dtype(inputs.files.dir, recipe.model.base_dtype.word(),
                                            inputs.precision.compute, inputs.device, &notice);
  if (!notice.empty()) inputs.notices.push_back(notice);
  inputs.storage = hf::base_storage(recipe.model.base_dtype.word());
  if (inputs.storage == ops::BaseStorage::kFp8 && !ops::has_fp8_products(inputs.device)) {
    inputs.notices.push_back(
        "model.base_dtype: fp8: this device has no FP8 products; the same codes are multiplied in "
        "float32, slowly");
  }
  if (inputs.storage != ops::BaseStorage::kDense && trains_whole(recipe, "language_model.")) {
    refuse(ErrorKind::kUsage,
           "weights stored in " + recipe.model.base_dtype.word() + " cannot be trained", "full",
           join(recipe.full) + " with model.base_dtype: " + recipe.model.base_dtype.word(),
           "adapters on the llm", "use lora.targets for the llm, or another model.base_dtype");
  }
  check_shards(recipe);

  family::Model shapes = shape_only(inputs.config);
  if (inputs.storage == ops::BaseStorage::kFp8) check_fp8_shapes(*shapes);
  const std::vector<lora::LinearSite> sites = adapted_sites(recipe, *shapes, &inputs.notices);
  if (sites.empty() && recipe.full.empty()) {
    refuse(ErrorKind::kUsage, "nothing to train", "lora.targets and full", "both are empty", {},
           "set lora.targets, for example [\"llm:all-linear\"]");
  }
  check_dense(inputs, sites);
  if (sites.empty() && recipe.optim.lora_plus_ratio != 1)
    inputs.notices.push_back("optim.lora_plus_ratio: no layer has an adapter, it changes nothing");
  inputs.files.trainable_parameters = count_trainable(recipe, *shapes, sites);
  const bool continues =
      resume &&
      !checkpoint::list_checkpoints(recipe.output_dir + "/checkpoints", /*verify=*/false).empty();
  // A resumed run needs its initial values again if they are its reference.
  if (!recipe.lora.init_from.empty() && (!continues || make_objective(recipe)->uses_reference())) {
    open_init(recipe, sites, &inputs.files, &inputs.notices);
  }
  inputs.data = open_run_data(recipe, inputs.config, std::move(tokenizer), &inputs.notices);
  if (inputs.files.init_from)
    hf::check_adapter_tokenizer(*inputs.files.init_from, inputs.data.encode.tokenizer_parts);
  inputs.data.encode.share_prompts = inputs.shares_prompts;
  inputs.max_tokens = inputs.data.encode.max_tokens;
  inputs.sources = source_shares(recipe, *inputs.data.train);
  inputs.rows = data::epoch_size({.sources = inputs.sources}, inputs.data.train->size());
  settle_accumulation(recipe, inputs.rows);
  const recipe::Recipe::Train& train = inputs.recipe.train;
  inputs.steps_per_epoch = at::ceil_div(inputs.rows, train.batch_size * train.grad_accum);
  inputs.total_steps = planned_steps(train, inputs.steps_per_epoch);
  check_last_step(inputs);
  if (const std::string line = judge_blocks(inputs); !line.empty()) inputs.notices.push_back(line);
  return inputs;
}

data::BatchLayout batch_layout(const RunInputs& inputs) {
  const int64_t budget = inputs.recipe.train.max_tokens_per_step;
  return {.encode = inputs.data.encode,
          .device = inputs.device,
          .packed = budget > 0,
          .fill_up = uses_cuda_graphs(inputs.recipe, inputs) ? budget : 0};
}

std::unique_ptr<data::Loader> start_loader(const RunInputs& inputs, int64_t first_step) {
  data::LoaderOptions options = loader_options(inputs, inputs.data.lengths);
  options.layout = std::make_shared<data::BatchLayout>(batch_layout(inputs));
  options.rank = inputs.rank;
  options.ranks = inputs.ranks;
  return std::make_unique<data::Loader>(*inputs.data.train, std::move(options), first_step);
}

}  // namespace lft::train
