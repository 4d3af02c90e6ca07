#include "src/train/setup.h"

#include <ATen/Parallel.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "models/ops/fp8.h"
#include "src/base/errors.h"
#include "src/base/hash.h"
#include "src/base/text.h"
#include "src/checkpoint/checkpoint.h"
#include "src/checkpoint/run_lock.h"
#include "src/data/lengths.h"
#include "src/io/files.h"
#include "src/train/cuda_graph.h"
#include "src/train/device.h"
#include "src/train/model_shapes.h"
#include "src/train/recipe_encoding.h"
#include "src/train/run_shapes.h"

namespace lft {
namespace {

bool contains(const std::vector<std::string>& items, const std::string& item) {
  return std::find(items.begin(), items.end(), item) != items.end();
}

LoraOptions lora_options(const Recipe& recipe) {
  return {.variant = recipe.lora.variant, .rank = recipe.lora.rank, .alpha = recipe.lora.alpha, .dropout = recipe.lora.dropout};
}

/// Of a model that has its adapters.
void take_trainables(RunModel& run, const Recipe& recipe) {
  Learnable learnable = never_learning(run.model->config, make_trainable(*run.model, recipe.full));
  run.trainables = std::move(learnable.kept);
  run.excluded = std::move(learnable.excluded);
  for (const at::Tensor& parameter : run.model->parameters()) run.parameters += parameter.numel();
  for (const Trainable& trainable : run.trainables) run.trainable_parameters += trainable.tensor.numel();
}

[[noreturn]] void reject_adapter(const AdapterDir& dir, const std::string& what, const std::string& found, const std::string& expected) {
  throw Error(ErrorKind::kInput, {.what = what,
                                  .where = dir.path,
                                  .found = found,
                                  .expected = expected,
                                  .next = "make the recipe agree with the adapter, or choose another lora.init_from"});
}

/// An adapter to start from has exactly the recipe's layers, rank and scale; whole-trained tensors of it must be trained whole again.
void check_init_adapter(const AdapterDir& dir, const Recipe& recipe, const std::vector<LinearSite>& sites) {
  std::set<std::string> wanted, present(dir.lora_modules.begin(), dir.lora_modules.end());
  for (const LinearSite& site : sites) wanted.insert(site.name);
  std::vector<std::string> missing, extra;
  std::set_difference(wanted.begin(), wanted.end(), present.begin(), present.end(), std::back_inserter(missing));
  std::set_difference(present.begin(), present.end(), wanted.begin(), wanted.end(), std::back_inserter(extra));
  if (!missing.empty() || !extra.empty()) {
    reject_adapter(dir, "the adapter's layers are not those of lora.targets",
                   std::to_string(present.size()) + " layers" + (extra.empty() ? "" : "; not in lora.targets: " + join(extra, ", ", 5)),
                   std::to_string(wanted.size()) + " layers" + (missing.empty() ? "" : "; not in the adapter: " + join(missing, ", ", 5)));
  }
  const auto describe = [](const LoraOptions& lora) {
    return "variant " + lora.variant + ", rank " + std::to_string(lora.rank) + ", alpha " + Json(lora.alpha).dump();
  };
  const LoraOptions asked = lora_options(recipe);
  if (!wanted.empty() && describe(dir.lora) != describe(asked)) {
    reject_adapter(dir, "the adapter was made with other LoRA settings", describe(dir.lora), describe(asked));
  }
  for (const std::string& tensor : dir.full_tensors) {
    if (trains_whole(recipe, tensor)) continue;
    reject_adapter(dir, "the adapter holds whole-trained tensors that the recipe does not train", tensor,
                   "full: [" + scope_of(tensor) + "]");
  }
}

int64_t divide_up(int64_t value, int64_t by) { return (value + by - 1) / by; }

/// FP8 products take sides of whole multiples; the first layer that has another one is named.
void check_fp8_shapes(LlavaImpl& model) {
  for (const LinearSite& site : linear_sites(model)) {
    const int64_t out = site.layer->weight.size(0), in = site.layer->weight.size(1);
    if (!in_decoder_layer(site.name) || (out % kFp8Multiple == 0 && in % kFp8Multiple == 0)) continue;
    throw Error(ErrorKind::kUsage, {.what = "the model has a layer that FP8 products cannot take",
                                    .where = "model.base_dtype: fp8, layer " + site.name,
                                    .found = std::to_string(out) + " outputs, " + std::to_string(in) + " inputs",
                                    .expected = "multiples of " + std::to_string(kFp8Multiple),
                                    .next = "set model.base_dtype to bf16 or nf4"});
  }
}

void open_data(RunInputs& inputs) {
  const Recipe& recipe = inputs.recipe;
  std::string notice;
  inputs.encode = encode_options(recipe.model.path, inputs.model_dir.config, *inputs.tokenizer, recipe.data.chat_template,
                                 recipe.data.image_fit, recipe.data.max_tokens, &notice);
  if (!notice.empty()) inputs.notices.push_back(notice);
  apply_data_rules(recipe, inputs.encode);
  const int64_t budget = recipe.train.max_tokens_per_step;
  if (budget > 0 && budget < inputs.encode.max_tokens) {
    throw Error(ErrorKind::kUsage, {.what = "train.max_tokens_per_step is below the longest sample that data.max_tokens lets through",
                                    .where = "train.max_tokens_per_step",
                                    .found = std::to_string(budget),
                                    .expected = "at least " + std::to_string(inputs.encode.max_tokens),
                                    .next = "raise it, or lower data.max_tokens"});
  }
  inputs.train = open_dataset(recipe.data.train, recipe.data.image_root, *inputs.tokenizer, inputs.encode);
  if (inputs.train->size() == 0)
    throw Error(ErrorKind::kInput, {.what = "no row to train on", .where = recipe.data.train, .found = {}, .expected = {}, .next = {}});
  if (!recipe.data.eval.empty()) inputs.eval = open_dataset(recipe.data.eval, recipe.data.image_root, *inputs.tokenizer, inputs.encode);
  if (recipe.data.group_by_length) sample_lengths(inputs);
  inputs.steps_per_epoch = divide_up(inputs.train->size(), recipe.train.batch_size * recipe.train.grad_accum);
  inputs.total_steps = recipe.train.max_steps > 0 ? recipe.train.max_steps : recipe.train.epochs * inputs.steps_per_epoch;
}

/// What will be trained, by shapes alone.
int64_t count_trainable(const Recipe& recipe, LlavaImpl& shapes, const std::vector<LinearSite>& sites) {
  int64_t count = 0;
  for (const LinearSite& site : sites) count += recipe.lora.rank * (site.layer->weight.size(0) + site.layer->weight.size(1));
  for (const auto& parameter : shapes.named_parameters()) {
    if (trains_whole(recipe, parameter.key())) count += parameter.value().numel();
  }
  return count;
}

/// The run that a used output directory holds, as far as it can be told. kUsage naming its process where that still runs.
std::string describe_run(const std::string& dir, const std::string& product) {
  refuse_locked(dir);
  const std::vector<CheckpointStatus> checkpoints = list_checkpoints(dir + "/checkpoints", /*verify=*/false);
  if (checkpoints.empty()) return product + " is there, no checkpoint";
  return "run " + checkpoints.front().run_id + ", step " + std::to_string(checkpoints.front().step);
}

std::string file_stamp(const std::string& path) {
  struct stat file {};
  if (stat(path.c_str(), &file) != 0) return "";
  return std::to_string(file.st_size) + " " + std::to_string(file.st_mtim.tv_sec) + "." + std::to_string(file.st_mtim.tv_nsec) + "\n";
}

}  // namespace

bool trains_whole(const Recipe& recipe, const std::string& name) {
  return contains(recipe.full, "all") || contains(recipe.full, scope_of(name));
}

std::vector<LinearSite> adapted_sites(const Recipe& recipe, LlavaImpl& model, std::vector<std::string>* notices) {
  if (contains(recipe.full, "all") || recipe.lora.targets.empty()) return {};
  std::vector<LinearSite> sites = select_sites(linear_sites(model), recipe.lora.targets);
  const size_t selected = sites.size();
  std::erase_if(sites, [&](const LinearSite& site) { return contains(recipe.full, site.scope); });
  if (sites.size() < selected && notices != nullptr) {
    notices->push_back(std::to_string(selected - sites.size()) + " layers of lora.targets get no adapter: `full` trains them whole");
  }
  return sites;
}

Llava shape_only(const LlavaConfig& config) { return Llava(config, at::kFloat, at::Device(at::kMeta)); }

void check_output_dir(const Recipe& recipe, bool resume) {
  const std::string& dir = recipe.output_dir;
  const auto fail = [&](ErrorKind kind, const std::string& what, const std::string& next, const std::string& found = "") {
    throw Error(kind, {.what = what, .where = dir, .found = found, .expected = {}, .next = next});
  };
  for (const std::string& input : {recipe.model.path, recipe.lora.init_from}) {
    if (!input.empty() && is_inside(dir, input))
      fail(ErrorKind::kUsage, "output_dir lies inside the input " + input, "choose another output_dir");
  }
  if (is_directory(recipe.data.train) && is_inside(dir, recipe.data.train)) {
    fail(ErrorKind::kUsage, "output_dir lies inside the prepared data", "choose another output_dir");
  }
  if (path_exists(dir) && !is_directory(dir)) fail(ErrorKind::kResource, "output_dir is a file", "choose another output_dir");
  for (const char* product : {"metrics.jsonl", "recipe.resolved.yaml", "checkpoints", "adapter", "model"}) {
    if (resume || !path_exists(dir + "/" + product)) continue;
    fail(ErrorKind::kUsage, "output_dir holds a run", "go on with it by --resume, or choose another dir", describe_run(dir, product));
  }
  std::filesystem::path existing = absolute_path(dir);
  while (!path_exists(existing.string()) && existing.has_parent_path() && existing != existing.parent_path())
    existing = existing.parent_path();
  if (!is_directory(existing.string()) || access(existing.c_str(), W_OK | X_OK) != 0) {
    fail(ErrorKind::kResource, "output_dir cannot be written: no permission to create files in " + existing.string(),
         "choose another output_dir");
  }
}

const std::vector<SampleLength>& sample_lengths(RunInputs& inputs) {
  if (inputs.lengths.empty()) inputs.lengths = measure_lengths(*inputs.train, inputs.recipe.data.workers, &inputs.bad);
  return inputs.lengths;
}

const std::string& image_stamp(RunInputs& inputs) {
  if (!inputs.image_stamp.empty()) return inputs.image_stamp;
  std::string seen;
  for (int64_t i = 0; i < inputs.train->size(); ++i) {
    try {
      for (const std::string& path : inputs.train->image_paths(i)) seen += file_stamp(path);
    } catch (const Error& error) {  // a bad row, which the loader judges
      if (error.kind() != ErrorKind::kInput) throw;
    }
  }
  if (!seen.empty()) inputs.image_stamp = sha256(seen).substr(0, 16);
  return inputs.image_stamp;
}

LoaderOptions loader_options(const RunInputs& inputs) {
  const Recipe& recipe = inputs.recipe;
  LoaderOptions options{.batch_size = recipe.train.batch_size,
                        .grad_accum = recipe.train.grad_accum,
                        .workers = recipe.data.workers,
                        .seed = static_cast<uint64_t>(recipe.train.seed),
                        .shuffle = recipe.data.shuffle,
                        .skip_bad = inputs.encode.skip_bad,
                        .max_tokens = recipe.train.max_tokens_per_step};
  if (recipe.data.group_by_length) {
    auto lengths = std::make_shared<std::vector<int32_t>>();
    for (const SampleLength& length : inputs.lengths) lengths->push_back(length.tokens);
    options.lengths = std::move(lengths);
  }
  return options;
}

std::unique_ptr<Loader> start_loader(const RunInputs& inputs, int64_t first_step) {
  return std::make_unique<Loader>(*inputs.train, loader_options(inputs), first_step);
}

int64_t recompute_every(const std::string& activation_checkpointing) {
  if (activation_checkpointing == "none") return 0;
  return activation_checkpointing == "block" ? 1 : std::stoll(activation_checkpointing.substr(std::string("every-").size()));
}

bool offloads_activations(const Recipe& recipe, at::Device device) { return recipe.train.activation_offload && !device.is_cpu(); }

bool uses_cuda_graphs(const Recipe& recipe, at::Device device) {
  return recipe.train.cuda_graphs == "auto" && records_graphs(device) &&
         recipe.train.max_tokens_per_step > 0 && !recipe.train.activation_offload;
}

void check_disk_space(const RunInputs& inputs) {
  const Recipe& recipe = inputs.recipe;
  constexpr uint64_t kBesides = 4u << 20;  // metrics, TensorBoard, report, manifests
  const uint64_t weights = static_cast<uint64_t>(inputs.trainable_parameters) * sizeof(float);
  const uint64_t needed = weights * 3 * (static_cast<uint64_t>(recipe.checkpoint.keep) + 1) + weights + kBesides;  // with both moments
  const uint64_t available = free_bytes(recipe.output_dir);
  if (available >= needed) return;
  throw Error(ErrorKind::kResource,
              {.what = "the disk is too small for this run's checkpoints",
               .where = recipe.output_dir,
               .found = format_bytes(static_cast<double>(available)) + " free",
               .expected = format_bytes(static_cast<double>(needed)) + " (checkpoint.keep + 1 of them, and the adapter)",
               .next = "free space, choose another output_dir, or lower checkpoint.keep or lora.rank"});
}

RunInputs open_inputs(const Recipe& recipe, bool resume) {
  RunInputs inputs;
  inputs.recipe = recipe;
  check_output_dir(recipe, resume);
  inputs.model_dir = recipe.model.init == "random" ? ModelDir::config_only(recipe.model.path) : ModelDir::open(recipe.model.path);
  inputs.tokenizer = Tokenizer::load(recipe.model.path);  // before the device is opened and threads start: it may fork a probe
  inputs.device = default_device();
  seed_generators(static_cast<uint64_t>(recipe.train.seed));
  inputs.precision = choose_precision(recipe.precision.compute, device_facts(inputs.device));
  if (!inputs.precision.notice.empty()) inputs.notices.push_back(inputs.precision.notice);
  const std::string unpacked = packing_fault(inputs.precision.compute, inputs.model_dir.config.text.head_dim, device_facts(inputs.device));
  if (recipe.train.max_tokens_per_step > 0 && !unpacked.empty()) {
    throw Error(ErrorKind::kUsage, {.what = "packed passes do not run on this GPU",
                                    .where = "train.max_tokens_per_step",
                                    .found = unpacked,
                                    .expected = "0",
                                    .next = "set train.max_tokens_per_step to 0, or precision.compute to fp32"});
  }
  if (inputs.device.is_cpu() && recipe.optim.offload)
    inputs.notices.push_back("optim.offload: on a CPU the moments are in host memory already");
  if (inputs.device.is_cpu() && recipe.train.activation_offload) {
    inputs.notices.push_back("train.activation_offload: on a CPU activations are in host memory already");
  }
  std::string notice;
  inputs.base_dtype = choose_base_dtype(inputs.model_dir, recipe.model.base_dtype,
                                        inputs.precision.compute, inputs.device, &notice);
  if (!notice.empty()) inputs.notices.push_back(notice);
  inputs.storage = base_storage(recipe.model.base_dtype);
  if (inputs.storage == BaseStorage::kFp8 && !has_fp8_products(inputs.device)) {
    inputs.notices.push_back("model.base_dtype: fp8: this device has no FP8 products; the same codes are multiplied in float32, slowly");
  }
  if (inputs.storage != BaseStorage::kDense && trains_whole(recipe, "language_model.")) {
    throw Error(ErrorKind::kUsage, {.what = "weights stored in " + recipe.model.base_dtype + " cannot be trained",
                                    .where = "full",
                                    .found = join(recipe.full) + " beside model.base_dtype: " + recipe.model.base_dtype,
                                    .expected = "adapters on the llm",
                                    .next = "use lora.targets for the llm, or another model.base_dtype"});
  }

  Llava shapes = shape_only(inputs.model_dir.config);
  if (inputs.storage == BaseStorage::kFp8) check_fp8_shapes(*shapes);
  const std::vector<LinearSite> sites = adapted_sites(recipe, *shapes, &inputs.notices);
  if (sites.empty() && recipe.full.empty()) {
    throw Error(ErrorKind::kUsage, {.what = "nothing to train",
                                    .where = "lora.targets and full",
                                    .found = "both are empty",
                                    .expected = {},
                                    .next = "set lora.targets, for example [\"llm:all-linear\"]"});
  }
  inputs.trainable_parameters = count_trainable(recipe, *shapes, sites);
  const bool continues = resume && !list_checkpoints(recipe.output_dir + "/checkpoints", /*verify=*/false).empty();
  if (!recipe.lora.init_from.empty() && !continues) {
    inputs.init_from = AdapterDir::open(recipe.lora.init_from);
    check_init_adapter(*inputs.init_from, recipe, sites);
    if (inputs.init_from->inference_mode) inputs.notices.push_back("the adapter says inference_mode: true; it is unfrozen for training");
  }
  open_data(inputs);
  return inputs;
}

RunModel build_model(const RunInputs& inputs, std::vector<std::string>* notices) {
  const Recipe& recipe = inputs.recipe;
  RunModel run;
  if (recipe.model.init == "random") {
    run.model =
        random_llava(inputs.model_dir.config, inputs.base_dtype, inputs.device, static_cast<uint64_t>(recipe.train.seed), inputs.storage);
  } else {
    run.model = load_llava(inputs.model_dir, inputs.base_dtype, inputs.device, recipe.model.check_weights, inputs.storage);
  }
  run.lora = lora_options(recipe);
  const std::vector<LinearSite> sites = adapted_sites(recipe, *run.model, nullptr);
  run.adapted_layers = static_cast<int64_t>(sites.size());
  if (inputs.init_from) {
    AdapterDir dir = *inputs.init_from;
    dir.lora.dropout = recipe.lora.dropout;
    load_adapter(run.model, dir);
  } else if (!sites.empty()) {
    inject_lora(sites, run.lora, static_cast<uint64_t>(recipe.train.seed));
  }
  take_trainables(run, recipe);
  return run;
}

RunModel run_shapes(const RunInputs& inputs) {
  RunModel run;
  run.model = Llava(inputs.model_dir.config, inputs.base_dtype, at::Device(at::kMeta));
  run.lora = lora_options(inputs.recipe);
  const std::vector<LinearSite> sites = adapted_sites(inputs.recipe, *run.model, nullptr);
  run.adapted_layers = static_cast<int64_t>(sites.size());
  if (!sites.empty()) inject_lora(sites, run.lora, static_cast<uint64_t>(inputs.recipe.train.seed));
  take_trainables(run, inputs.recipe);
  return run;
}

AdamW make_optimizer(const Recipe& recipe, const std::vector<Trainable>& trainables) {
  const bool on_host = std::all_of(trainables.begin(), trainables.end(), [](const Trainable& each) { return each.tensor.is_cpu(); });
  return AdamW(trainables, param_groups(trainables, recipe.optim.lr, recipe.optim.projector_lr),
               {.betas = recipe.optim.betas, .eps = recipe.optim.eps, .weight_decay = recipe.optim.weight_decay},
               {.eight_bits = recipe.optim.name == "adamw8bit", .offload = recipe.optim.offload && !on_host});
}

std::vector<std::string> describe_plan(const RunInputs& inputs, const RunModel& model) {
  const Recipe& recipe = inputs.recipe;
  std::string trained = trained_share(model.trainable_parameters, model.parameters);
  if (model.adapted_layers > 0) {
    trained += ": " + recipe.lora.variant + " of rank " + std::to_string(recipe.lora.rank) + " on " + std::to_string(model.adapted_layers) +
               " layers";
  }
  if (!recipe.full.empty()) trained += std::string(model.adapted_layers > 0 ? ", " : ": ") + "whole: " + join(recipe.full);
  const int64_t global_batch = recipe.train.batch_size * recipe.train.grad_accum;
  return {"model      " + recipe.model.path + ", frozen weights in " +
              (inputs.storage == BaseStorage::kDense ? "" : recipe.model.base_dtype + " and ") + compute_name(inputs.base_dtype),
          "trains     " + trained,
          "device     " + inputs.device.str() +
              (inputs.device.is_cpu() ? " (" + cpu_model() + ", " + std::to_string(at::get_num_threads()) + " threads)" : ""),
          "precision  " + compute_name(inputs.precision.compute) + " (" + inputs.precision.reason + ")",
          "data       " + std::to_string(inputs.train->size()) + " rows to train on" +
              (inputs.eval ? ", " + std::to_string(inputs.eval->size()) + " to evaluate" : ""),
          "steps      " + std::to_string(inputs.total_steps) + " of " + std::to_string(global_batch) + " samples (" +
              std::to_string(inputs.steps_per_epoch) + " an epoch)"};
}

}  // namespace lft
