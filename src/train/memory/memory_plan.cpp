#include "src/train/memory/memory_plan.h"

#include <algorithm>
#include <utility>

#include "models/llama/attention_mask.h"
#include "src/base/sum_tree.h"
#include "src/data/batch.h"
#include "src/train/inputs/run_objective.h"
#include "src/train/machine/cpu_allocator.h"
#include "src/train/memory/evaluation_moment.h"
#include "src/train/memory/memory_units.h"
#include "src/train/memory/moment.h"
#include "src/train/optim/rules.h"
#include "src/train/step/gradient_tree.h"
#include "src/train/step/graph_passes.h"

namespace lft::train {
namespace {

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
  if (!batch.packed) return batch.rows() * of(batch.longest(), batch.images() > 0);
  int64_t sum = 0;
  for (const data::SampleLength& sample : batch.samples)
    sum += sample.sides * of(sample.longest, sample.placed > 0);
  return sum;
}

/// `alone`: features are computed image by image.
PassShape shape_of(const RunSettings& settings, const MicroBatchShape& batch, bool alone) {
  const int64_t samples = batch.rows();
  PassShape shape{.samples = samples,
                  .rows = batch.packed ? 1 : samples,
                  .longest = batch.packed ? batch.positions() : batch.longest(),
                  .images = batch.images(),
                  .supervised = batch.supervised(),
                  .attended = batch.attended(),
                  .masked = mask_numbers(settings.config, batch),
                  .values = batch.sum(&data::SampleLength::values),
                  .tower = batch.sum(&data::SampleLength::tower),
                  .placed = batch.sum(&data::SampleLength::placed)};
  for (const data::SampleLength& sample : batch.samples) {
    if (!alone) break;
    shape.row_values = std::max(shape.row_values, sample.values);
    shape.row_tower = std::max(shape.row_tower, sample.tower);
    shape.row_placed = std::max(shape.row_placed, sample.placed);
  }
  if (fills_up(settings))
    shape.longest = shape.attended =
        data::filled_tokens(shape.longest, settings.recipe.train.max_tokens_per_step);
  return shape;
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

/// Features of the images of all rows, as many as fit in data.image_cache_mb; rows with the same
/// image need less.
double kept_features(const RunSettings& settings, const MicroBatchShape& batch) {
  if (batch.samples.empty()) return 0;
  const family::ModelConfig& config = settings.config;
  const double of_row =
      static_cast<double>(batch.sum(&data::SampleLength::placed) * config.text.hidden *
                          (1 + config.family->vision(config).deep_features)) /
      static_cast<double>(batch.samples.size()) * pass_types(settings).compute;
  return std::min(static_cast<double>(settings.recipe.data.image_cache_mb << 20),
                  of_row * static_cast<double>(settings.rows + settings.evaluated_rows));
}

/// The largest number of partial sums of one process.
double waiting_sums(const RunSettings& settings, const MicroBatchShape& worst, double bytes) {
  if (!adds_by_tree(bytes, settings.device)) return 0;
  const int64_t all =
      worst.in_step > 0 ? worst.in_step : std::max<int64_t>(1, settings.recipe.train.grad_accum);
  return static_cast<double>(most_waiting((all + settings.ranks - 1) / settings.ranks));
}

}  // namespace

double MemoryPlan::bytes_of(const std::string& part) const {
  const auto found = std::ranges::find(parts, part, &MemoryPart::name);
  return found == parts.end() ? 0 : found->bytes;
}

MemoryPlan plan_memory(const RunSettings& settings, const MicroBatchShape& worst) {
  TrainedSize size = trained_size(settings);
  const bool alone = settings.device.is_cpu() && size.before_decoder == 0;
  const PassShape shape = shape_of(settings, worst, alone);
  if (settings.ranks > 1) size.update = std::max(size.update, 4 * size.trained);  // the input
  const PassTypes types = pass_types(settings);
  Moment moment = pass_moment(settings, shape, size.update);
  keep_larger(moment, evaluation_moment(settings, moment.gradients, alone));
  const bool kl = make_objective(settings.recipe)->uses_kl();
  if (kl) keep_larger(moment, kl_moment(settings, shape, 4 * size.trained));
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
  add("lengths of the rows of adapted weights", size.lengths);
  add("initial values of the reference", kl ? 4 * size.trained : 0);
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
    if (alone) add(kFeatures, kept_features(settings, worst));
    add(kImagesRead, (1 + kReadingBlocks) * worst.reading);
    const bool compiles = settings.precision.compute == at::kBFloat16 && !types.widens;
    double activations = 0;
    for (const auto& [part, bytes] : moment.activations) activations += bytes;
    const bool tiles = types.widens && !types.widens_attention;  // also products of oneDNN
    add("between blocks", (compiles || tiles ? kGapsAmongProducts : kGaps) * activations);
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
