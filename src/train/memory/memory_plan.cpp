#include "src/train/memory/memory_plan.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <thread>
#include <utility>

#include "models/llama/attention_mask.h"
#include "models/llama/kv_cache.h"
#include "src/base/sum_tree.h"
#include "src/data/batch.h"
#include "src/infer/evaluate.h"
#include "src/train/inputs/run_data.h"
#include "src/train/machine/cpu_allocator.h"
#include "src/train/memory/memory_units.h"
#include "src/train/optim/rules.h"
#include "src/train/step/gradient_tree.h"
#include "src/train/step/graph_passes.h"

namespace lft::train {
namespace {

constexpr int64_t kMostEpochs = 100;
constexpr double kSmallBlocks = 4.9e6;   // and stacks: measured on the CPU, equal for all models
constexpr double kWorkerBlocks = 0.5e6;  // the same for one of data.workers
constexpr double kReadingBlocks = 0.01;  // fraction of image memory: the decoders' rows and tables
// Fraction of the activations lost to gaps between malloc's blocks: measured on the CPU in float32,
// and with the kernels that oneDNN caches.
constexpr double kGaps = 0.04, kGapsAmongProducts = 0.11;
constexpr double kMklBuffers = 17e6;  // upper bound of the packed float32 operands that MKL caches;
                                      // MKL_DISABLE_FAST_MM=1 saves this much
constexpr double kGpuWorkspace = 32 << 20;  // of cuBLAS, per stream and thread
constexpr double kGpuThreads = 2;           // the forward pass's thread, and autograd's

bool fills_up(const RunSettings& settings) { return uses_cuda_graphs(settings.recipe, settings); }

/// Elements of attention masks: of full-attention layers if image tokens attend to each other both
/// ways, and of sliding-window layers if the window is shorter than the sequence.
int64_t mask_numbers(const family::ModelConfig& config, const MicroBatchShape& batch) {
  const llama::LlamaConfig& text = config.text;
  const bool slides = std::ranges::find(text.slides, true) != text.slides.end();
  const auto of = [&](int64_t positions, bool images) {
    const bool blocks = text.image_blocks && images;
    const int64_t kinds = blocks + (slides && (blocks || positions > text.window));
    return kinds * positions * llama::mask_row(positions);
  };
  if (!batch.packed)
    return static_cast<int64_t>(batch.samples.size()) * of(batch.longest(), batch.images() > 0);
  int64_t sum = 0;
  for (const data::SampleLength& sample : batch.samples)
    sum += of(sample.tokens, sample.placed > 0);
  return sum;
}

PassShape shape_of(const RunSettings& settings, const MicroBatchShape& batch) {
  const auto samples = static_cast<int64_t>(batch.samples.size());
  PassShape shape{.samples = samples,
                  .rows = batch.packed ? 1 : samples,
                  .longest = batch.packed ? batch.positions() : batch.longest(),
                  .images = batch.images(),
                  .supervised = batch.supervised(),
                  .masked = mask_numbers(settings.config, batch),
                  .values = batch.sum(&data::SampleLength::values),
                  .tower = batch.sum(&data::SampleLength::tower),
                  .placed = batch.sum(&data::SampleLength::placed)};
  if (fills_up(settings))
    shape.longest = data::filled_tokens(shape.longest, settings.recipe.train.max_tokens_per_step);
  return shape;
}

/// Bytes allocated at one moment of a pass, by part.
struct Moment {
  std::string name;
  std::map<std::string, double> activations;
  double gradients = 0, temporaries = 0, pixels = 0;
  double proof = 0;  // copies of a CUDA graph's outputs
  double spare = 0;  // optional part of the total
  double total() const {
    double sum = gradients + temporaries + pixels + proof;
    for (const auto& [part, bytes] : activations) sum += bytes;
    return sum;
  }
};

void keep_larger(Moment& most, Moment moment) {
  if (moment.total() > most.total()) most = std::move(moment);
}

double trained_bytes(const std::vector<MemoryUnit>& units) {
  double sum = 0;
  for (const MemoryUnit& unit : units) sum += unit.gradients;
  return sum;
}

/// Forward through the units, then backward, then an update, which temporarily needs `update`
/// bytes. The gradients are allocated throughout.
Moment worst_moment(const std::vector<MemoryUnit>& units, double pixels, double input_share,
                    double update) {
  const double all = trained_bytes(units);
  Moment most, now{.name = "forward pass", .activations = {}, .gradients = all, .pixels = pixels};
  for (const MemoryUnit& unit : units) {
    Moment moment = now;
    moment.name += ", " + unit.name;
    moment.temporaries = unit.forward;
    now.activations[unit.part] += unit.recomputed ? unit.input * input_share : unit.saved;
    moment.activations[unit.part] += unit.recomputed ? unit.input : unit.saved;
    keep_larger(most, std::move(moment));
  }
  now.name = "backward pass";
  now.pixels = 0;
  for (auto unit = units.rbegin(); unit != units.rend(); ++unit) {
    Moment first = now;
    first.name += ", " + unit->name;
    if (unit->recomputed) first.activations[unit->part] += unit->saved;
    Moment second = first;
    first.temporaries = unit->backward;
    second.activations[unit->part] -= unit->saved - unit->early;
    second.temporaries = unit->second;
    keep_larger(most, std::move(first));
    keep_larger(most, std::move(second));
    now.activations[unit->part] -= unit->recomputed ? unit->input * input_share : unit->saved;
  }
  keep_larger(
      most, {.name = "optimizer step", .activations = {}, .gradients = all, .temporaries = update});
  return most;
}

double pixel_bytes(const PassShape& shape) { return 4.0 * static_cast<double>(shape.values); }

Moment plain_moment(const RunSettings& settings, const std::vector<MemoryUnit>& units,
                    const PassShape& shape, double update) {
  const double input_share = offloads_activations(settings.recipe, settings.device) ? 0 : 1;
  return worst_moment(units, pixel_bytes(shape), input_share, update);
}

double embeds_bytes(const RunSettings& settings, int64_t tokens) {
  return static_cast<double>(tokens * settings.config.text.hidden) * pass_types(settings).stream;
}

/// With CUDA graphs the decoder's pass uses an arena whose memory stays allocated after the pass.
/// Memory outside is added to the arena's peak: the images' pass, part of which may be kept for its
/// backward pass, the copies that verify a graph, or an update.
Moment arena_moment(const RunSettings& settings, const std::vector<MemoryUnit>& units,
                    const PassShape& shape, double update) {
  const auto first = std::find_if(units.begin(), units.end(), [](const MemoryUnit& unit) {
    return unit.part == "decoder layers";
  });
  const std::vector<MemoryUnit> images(units.begin(), first), decoder(first, units.end());
  const Moment inside = worst_moment(decoder, /*pixels=*/0, /*input_share=*/1, /*update=*/0);
  Moment kept{.name = inside.name + ", while a CUDA graph is proven", .activations = {}};
  for (const MemoryUnit& unit : images) kept.activations[unit.part] += unit.saved;
  Moment outside = worst_moment(images, /*pixels=*/0, /*input_share=*/1, update);
  outside.gradients = 0;                              // of all units, below
  kept.pixels = outside.pixels = pixel_bytes(shape);  // until the end of the pass
  const double needed = std::max(kept.total(), outside.total());
  kept.proof = 2 * (trained_bytes(decoder) +
                    (trained_bytes(images) > 0 ? embeds_bytes(settings, shape.longest) : 0));
  keep_larger(outside, std::move(kept));
  outside.spare = outside.total() - needed;
  for (const auto& [part, bytes] : inside.activations) outside.activations[part] += bytes;
  outside.temporaries += inside.temporaries;
  outside.gradients = trained_bytes(units);
  return outside;
}

/// Bytes in float32 of the largest operand of a product: a weight, or the widest rows.
double largest_operand(const family::ModelConfig& config, const PassShape& shape) {
  const family::Tower vision = config.family->layout(config).vision;
  const int64_t decoder =
                    config.text.hidden * std::max(config.text.vocab, config.text.intermediate),
                tower = vision.width * vision.inner,
                text_rows = shape.rows * config.text.intermediate,
                tower_rows = shape.tower * vision.inner;
  return 4.0 * static_cast<double>(std::max({decoder, tower, text_rows, tower_rows}));
}

Moment pass_moment(const RunSettings& settings, const PassShape& shape, double update) {
  const std::vector<MemoryUnit> units = memory_units(settings, shape);
  // In FP32 the decoder has no graph.
  const bool arena = fills_up(settings) && settings.precision.compute != at::kFloat;
  return arena ? arena_moment(settings, units, shape, update)
               : plain_moment(settings, units, shape, update);
}

/// Persistent inputs of graph passes: the embeddings and their
/// gradient at the largest size, and, if nothing before the decoder
/// is trained, the pixels and features for each number of images.
double graph_inputs(const RunSettings& settings, const PassShape& shape) {
  if (!fills_up(settings)) return 0;
  const family::ModelConfig& config = settings.config;
  double sum = 2 * embeds_bytes(settings, settings.recipe.train.max_tokens_per_step);
  const TrainedSize size = trained_size(settings);
  if (size.before_decoder > 0) return sum;
  const double image = static_cast<double>(shape.placed * config.text.hidden) /
                           static_cast<double>(std::max<int64_t>(1, shape.images)) *
                           pass_types(settings).compute +
                       pixel_bytes(shape) / static_cast<double>(std::max<int64_t>(1, shape.images));
  for (int64_t images = shape.images;
       images > std::max<int64_t>(0, shape.images - kMostImageCounts); --images) {
    sum += static_cast<double>(images) * image;
  }
  return sum;
}

/// The number of samples in the loader: with workers or waiting for the step.
int64_t places_ahead(const recipe::Recipe& recipe) {
  return std::min<int64_t>(
      recipe.train.batch_size * recipe.train.grad_accum + 2 * recipe.data.workers, 4096);
}

/// Samples waiting between the workers and the step, and those of the previous, the current and the
/// next step, which is fetched while this one ends: bytes of pixels and eight per token. A step has
/// no more samples than the data has rows.
double samples_ahead(const RunSettings& settings, const PassShape& shape) {
  if (shape.samples == 0) return 0;
  const recipe::Recipe& recipe = settings.recipe;
  const int64_t group = std::min(recipe.train.batch_size * recipe.train.grad_accum, settings.rows);
  const int64_t ahead = std::min<int64_t>(places_ahead(recipe), settings.steps_per_epoch * group);
  const auto held = static_cast<double>(ahead + 3 * group);
  return held * (pixel_bytes(shape) / 4 + 16.0 * static_cast<double>(shape.rows * shape.longest)) /
         static_cast<double>(shape.samples);
}

/// Decoding more images at a time than processors takes more memory and no less time.
int64_t images_at_a_time(const recipe::Recipe& recipe) {
  return std::min<int64_t>(recipe.data.workers, std::max(2U, std::thread::hardware_concurrency()));
}

/// The memory limit of the loader's workers (data::ReadingBudget): as many
/// images of median size as are read at a time, or the largest one alone.
/// Workers come close to it in any order. Without train.worst_first
/// nothing is measured before the first step, and there is no limit.
double reading_budget(const recipe::Recipe& recipe,
                      const std::vector<data::SampleLength>& lengths) {
  double sum = 0, most = 0, images = 0;
  for (const data::SampleLength& each : lengths) {
    const auto bytes = static_cast<double>(each.reading);
    sum += bytes;
    most = std::max(most, bytes);
    images += bytes > 0 ? 1 : 0;
  }
  if (!recipe.train.worst_first)
    return std::min(static_cast<double>(recipe.data.workers), images) * most;
  const auto together = static_cast<double>(images_at_a_time(recipe));
  return images > 0 ? std::max(most, std::ceil(std::min(together, images) * sum / images)) : 0;
}

/// An evaluation between two steps: the passes without gradients, and the answers of a metric with
/// their cache of keys and values. `gradients`: of all trainables. Not counted on a GPU.
Moment evaluation_moment(const RunSettings& settings, double gradients) {
  const data::SampleLength& row = settings.evaluated;
  if (row.tokens == 0 || !settings.device.is_cpu()) return {};
  const recipe::Recipe& recipe = settings.recipe;
  const int64_t rows = std::min(recipe.train.batch_size, settings.evaluated_rows);
  const std::optional<infer::Metric> metric = infer::find_metric(recipe.train.keep_best.word());
  int64_t answer = 0;
  if (metric == infer::Metric::kExact) answer = infer::exact_answer_tokens(row.supervised);
  if (metric && metric != infer::Metric::kExact) answer = infer::GenerateOptions().max_new_tokens;
  RunSettings frozen = settings;
  frozen.recipe.lora.targets.clear();
  frozen.recipe.full.clear();
  const PassShape shape{.samples = rows,
                        .rows = rows,
                        .longest = row.tokens,
                        .images = rows * row.images,
                        .supervised = rows * row.supervised,
                        .values = rows * row.values,
                        .tower = rows * row.tower,
                        .placed = rows * row.placed};
  Moment moment = worst_moment(memory_units(frozen, shape), pixel_bytes(shape), 1, 0);
  moment.name = "evaluation, " + moment.name;
  moment.gradients = gradients;
  // Its loader reads ahead too.
  moment.pixels += static_cast<double>(2 + 2 * recipe.data.workers / std::max<int64_t>(1, rows)) *
                   pixel_bytes(shape) / 4;
  if (!metric) return moment;
  const llama::LlamaConfig& text = settings.config.text;
  const int64_t positions = rows * llama::whole_key_steps(row.tokens + answer);
  moment.activations["keys and values of answers"] +=
      static_cast<double>(2 * text.layers * text.kv_heads * text.head_dim * positions) *
      pass_types(settings).compute;
  moment.temporaries += 4.0 * 2 * static_cast<double>(rows * text.vocab);  // logits
  return moment;
}

/// The largest number of partial sums of one process.
double waiting_sums(const RunSettings& settings, const MicroBatchShape& worst, double bytes) {
  if (!adds_by_tree(bytes, settings.device)) return 0;
  const int64_t all =
      worst.in_step > 0 ? worst.in_step : std::max<int64_t>(1, settings.recipe.train.grad_accum);
  return static_cast<double>(most_waiting((all + settings.ranks - 1) / settings.ranks));
}

}  // namespace

LargestMicroBatch::Weights LargestMicroBatch::weigh(const RunSettings& settings) {
  const family::ImagePlan image = family::reference_image_plan(settings.config);
  const auto with_images = [&](PassShape shape, int64_t images) {
    shape.images = images;
    shape.values = images * image.shape.values();
    shape.tower = images * image.tower_positions;
    shape.placed = images * image.positions();
    return shape;
  };
  const PassShape base =
      with_images({.samples = 4, .rows = 4, .longest = 1024, .supervised = 1024}, 4);
  const auto total = [&](PassShape shape) {
    return plain_moment(settings, memory_units(settings, shape), shape, /*update=*/0).total();
  };
  const double start = total(base);
  PassShape longer = base, asked = base;
  const PassShape more = with_images(base, 8);
  longer.longest *= 2;
  asked.supervised *= 2;
  return {.token = (total(longer) - start) / 4096,
          .tower = (total(more) - start) / static_cast<double>(more.tower - base.tower),
          .supervised = (total(asked) - start) / 1024};
}

LargestMicroBatch::LargestMicroBatch(const RunSettings& settings) : weights_(weigh(settings)) {}

void LargestMicroBatch::consider(MicroBatchShape batch) {
  const auto supervised = static_cast<double>(batch.supervised());
  const double bytes = weights_.token * static_cast<double>(batch.positions()) +
                       weights_.tower * static_cast<double>(batch.sum(&data::SampleLength::tower)) +
                       weights_.supervised * supervised;
  if (supervised == 0 || bytes <= most_) return;
  most_ = bytes;
  largest_ = std::move(batch);
}

int64_t MicroBatchShape::longest() const {
  return samples.empty() ? 0 : std::ranges::max(samples, {}, &data::SampleLength::tokens).tokens;
}
int64_t MicroBatchShape::positions() const {
  return packed ? sum(&data::SampleLength::tokens)
                : static_cast<int64_t>(samples.size()) * longest();
}

MicroBatchShape worst_micro_batch(const RunSettings& settings,
                                  const std::vector<data::SampleLength>& lengths) {
  const data::LoaderOptions options = loader_options(settings, lengths);
  const int64_t size = data::epoch_size(options, std::ssize(lengths)),
                group = options.batch_size * options.grad_accum;
  const bool packed = options.max_tokens > 0;
  LargestMicroBatch seen(settings);
  int64_t in_step = 0;
  const int64_t epochs =
      std::min<int64_t>(kMostEpochs, (settings.total_steps + settings.steps_per_epoch - 1) /
                                         settings.steps_per_epoch);
  for (int64_t epoch = 0; epoch < epochs; ++epoch) {
    data::EpochOrder order(options, std::ssize(lengths), epoch);
    for (int64_t begin = 0; begin < size; begin += group) {
      const MicroBatchShape none{.samples = {},
                                 .indices = {},
                                 .step = epoch * settings.steps_per_epoch + begin / group + 1,
                                 .packed = packed};
      if (none.step > settings.total_steps) break;
      data::MicroBatchCutter cutter(options);
      MicroBatchShape batch = none;
      int64_t starts = 0;
      for (int64_t i = begin; i < std::min(begin + group, size); ++i) {
        const auto index = static_cast<size_t>(order.at(i));
        if (cutter.starts_micro_batch(i - begin, lengths[index].tokens)) {
          ++starts;
          seen.consider(std::exchange(batch, none));
        }
        if (lengths[index].tokens == 0) continue;
        batch.samples.push_back(lengths[index]);
        batch.indices.push_back(static_cast<int64_t>(index));
      }
      seen.consider(std::move(batch));
      in_step = std::max(in_step, starts);
    }
  }
  MicroBatchShape worst = seen.largest();
  worst.in_step = in_step;
  // An evaluation reads its rows within the same limit.
  worst.reading =
      std::max(reading_budget(settings.recipe, lengths),
               static_cast<double>(images_at_a_time(settings.recipe) * settings.evaluated.reading));
  return worst;
}

MemoryPlan plan_memory(const RunSettings& settings, const MicroBatchShape& worst) {
  const PassShape shape = shape_of(settings, worst);
  TrainedSize size = trained_size(settings);
  if (settings.ranks > 1) size.update = std::max(size.update, 4 * size.trained);  // the input
  const PassTypes types = pass_types(settings);
  Moment moment = pass_moment(settings, shape, size.update);
  keep_larger(moment, evaluation_moment(settings, moment.gradients));
  MemoryPlan plan{.parts = {}, .moment = moment.name, .spare = moment.spare};
  const auto add = [&](const std::string& name, double bytes) {
    if (bytes > 0) plan.parts.push_back({name, bytes});
    plan.peak += std::max(0.0, bytes);
  };
  const double in_slices = settings.shard_group_size > 1 ? size.layer_bytes : 0;
  const auto holders = static_cast<double>(settings.shard_group_size);
  add("frozen weights",
      (size.frozen - size.coded) * types.weight + size.coded_bytes - in_slices * (1 - 1 / holders));
  const int64_t layers = settings.config.text.layers;
  add("layers gathered of slices",
      in_slices * static_cast<double>(std::min<int64_t>(2, layers)) / static_cast<double>(layers));
  add("trainables", 4 * size.trained);
  add("copies of A and B for products", size.shadows);
  add("A and B as they began", types.gpu ? 0 : size.starts);
  add("gradients", moment.gradients);
  add("sums of gradients that wait",
      waiting_sums(settings, worst, 4 * size.trained) * 4 * size.trained);
  add(find_rule(settings.recipe.optim.name).moments,
      settings.recipe.optim.offload && types.gpu ? 0 : size.moments);
  for (const auto& [part, bytes] : moment.activations) add("activations, " + part, bytes);
  add("temporaries", moment.temporaries);
  add("pixels", moment.pixels);
  add("copies that prove a CUDA graph", moment.proof);
  add("inputs of CUDA graphs", graph_inputs(settings, shape));
  if (types.gpu) {
    add("workspace", kGpuWorkspace * kGpuThreads * (fills_up(settings) ? 2 : 1));
    add("the checkpoint being written",
        4 * size.trained + (settings.recipe.optim.offload ? 0 : size.moments));
  } else {
    add("samples read ahead", samples_ahead(settings, shape));
    add(kImagesRead, (1 + kReadingBlocks) * worst.reading);
    const bool compiles = settings.precision.compute == at::kBFloat16 && !types.widens;
    double activations = 0;
    for (const auto& [part, bytes] : moment.activations) activations += bytes;
    add("between blocks", (compiles ? kGapsAmongProducts : kGaps) * activations);
    add("stacks and small blocks",
        kSmallBlocks + kWorkerBlocks * static_cast<double>(settings.recipe.data.workers) *
                           (settings.evaluated_rows > 0 ? 2 : 1));  // an evaluation has its own
    add(compiles ? "oneDNN's cached kernels" : "MKL's buffers",
        compiles ? static_cast<double>(kCachedProducts * cached_product_bytes())
                 : std::min(kMklBuffers, largest_operand(settings.config, shape)));
  }
  return plan;
}

}  // namespace lft::train
