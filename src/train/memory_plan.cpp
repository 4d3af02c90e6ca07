#include "src/train/memory_plan.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "src/train/cpu_allocator.h"
#include "src/train/memory_units.h"
#include "src/train/memory_watch.h"

namespace lft {
namespace {

constexpr int64_t kMostEpochs = 100;
/// Measured on the CPU, the same for every model: pages of LibTorch's code and data that a first step brings in (22 MB), stacks and small
/// blocks (9 MB).
constexpr double kLibraryPages = 31e6;
constexpr double kMklBuffers = 17e6;        // what MKL keeps for float32 products; with MKL_DISABLE_FAST_MM=1 a run takes as much less
constexpr double kGpuWorkspace = 32 << 20;  // of cuBLAS

PassShape shape_of(const MicroBatchShape& batch) {
  const auto samples = static_cast<int64_t>(batch.samples.size());
  return {.samples = samples,
          .rows = batch.packed ? 1 : samples,
          .longest = batch.packed ? batch.positions() : batch.longest(),
          .images = batch.images(),
          .supervised = batch.supervised()};
}

/// Bytes held and used at one moment of a pass, by part.
struct Moment {
  std::string name;
  std::map<std::string, double> activations;
  double gradients = 0, temporaries = 0, pixels = 0;
  double total() const {
    double sum = gradients + temporaries + pixels;
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

/// Forward through the units, then backward. With accumulation the gradients of earlier micro-batches are there all along.
Moment worst_moment(const std::vector<MemoryUnit>& units, double pixels, bool accumulates, double input_share) {
  const double all = trained_bytes(units);
  Moment most, now{.name = "forward pass", .activations = {}, .gradients = accumulates ? all : 0, .pixels = pixels};
  for (const MemoryUnit& unit : units) {
    Moment moment = now;
    moment.name += ", " + unit.name;
    moment.temporaries = unit.forward;
    moment.activations[unit.part] += unit.saved;
    keep_larger(most, std::move(moment));
    now.activations[unit.part] += unit.recomputed ? unit.input * input_share : unit.saved;
  }
  now.name = "backward pass";
  now.pixels = 0;
  for (auto unit = units.rbegin(); unit != units.rend(); ++unit) {
    if (!accumulates) now.gradients += unit->gradients;
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
  Moment update{.name = "optimizer step", .activations = {}, .gradients = all};
  keep_larger(most, std::move(update));
  return most;
}

double pixel_bytes(const RunInputs& inputs, const PassShape& shape) {
  const ClipConfig& vision = inputs.model_dir.config.vision;
  return 4.0 * static_cast<double>(shape.images * vision.channels * vision.image_size * vision.image_size);
}

Moment pass_moment(const RunInputs& inputs, const PassShape& shape) {
  return worst_moment(memory_units(inputs, shape), pixel_bytes(inputs, shape), inputs.recipe.train.grad_accum > 1,
                      offloads_activations(inputs.recipe, inputs.device) ? 0 : 1);
}

/// Samples that wait between the workers and the step, and those of this step and the last: bytes of pixels and eight of a token.
double samples_ahead(const RunInputs& inputs, const PassShape& shape) {
  if (shape.samples == 0) return 0;
  const Recipe& recipe = inputs.recipe;
  const int64_t group = recipe.train.batch_size * recipe.train.grad_accum;
  const int64_t ahead = std::min<int64_t>(std::min<int64_t>(group + 2 * recipe.data.workers, 4096), inputs.steps_per_epoch * group);
  const auto held = static_cast<double>(ahead + 2 * group);
  return held * (pixel_bytes(inputs, shape) / 4 + 16.0 * static_cast<double>(shape.rows * shape.longest)) /
         static_cast<double>(shape.samples);
}

/// Bytes a micro-batch adds for a position (padding counted), an image, a supervised token. A pass is linear in each but for the LM head's
/// last chunk.
struct Weights {
  double token = 0, image = 0, supervised = 0;
};
Weights weigh(const RunInputs& inputs) {
  const PassShape base{.samples = 4, .rows = 4, .longest = 1024, .images = 4, .supervised = 1024};
  const auto total = [&](PassShape shape) { return pass_moment(inputs, shape).total(); };
  const double start = total(base);
  PassShape longer = base, more = base, asked = base;
  longer.longest *= 2;
  more.images *= 2;
  asked.supervised *= 2;
  return {.token = (total(longer) - start) / 4096, .image = (total(more) - start) / 4, .supervised = (total(asked) - start) / 1024};
}

}  // namespace

int64_t MicroBatchShape::longest() const {
  int64_t longest = 0;
  for (const SampleLength& sample : samples) longest = std::max<int64_t>(longest, sample.tokens);
  return longest;
}
int64_t MicroBatchShape::positions() const {
  if (!packed) return static_cast<int64_t>(samples.size()) * longest();
  int64_t sum = 0;
  for (const SampleLength& sample : samples) sum += sample.tokens;
  return sum;
}
int64_t MicroBatchShape::images() const {
  int64_t sum = 0;
  for (const SampleLength& sample : samples) sum += sample.images;
  return sum;
}
int64_t MicroBatchShape::supervised() const {
  int64_t sum = 0;
  for (const SampleLength& sample : samples) sum += sample.supervised;
  return sum;
}

MicroBatchShape worst_micro_batch(const RunInputs& inputs, const std::vector<SampleLength>& lengths) {
  const LoaderOptions options = loader_options(inputs);
  const Weights weights = weigh(inputs);
  const auto size = static_cast<int64_t>(lengths.size()), group = options.batch_size * options.grad_accum;
  const bool packed = options.max_tokens > 0;
  MicroBatchShape worst;
  double most = 0;
  const auto consider = [&](MicroBatchShape batch) {
    const auto supervised = static_cast<double>(batch.supervised());
    const double bytes = weights.token * static_cast<double>(batch.positions()) + weights.image * static_cast<double>(batch.images()) +
                         weights.supervised * supervised;
    if (supervised == 0 || bytes <= most) return;
    most = bytes;
    worst = std::move(batch);
  };
  const int64_t epochs = std::min<int64_t>(kMostEpochs, (inputs.total_steps + inputs.steps_per_epoch - 1) / inputs.steps_per_epoch);
  for (int64_t epoch = 0; epoch < epochs; ++epoch) {
    const std::vector<int64_t> order = epoch_order(options, size, epoch);
    for (int64_t begin = 0; begin < size; begin += group) {
      const MicroBatchShape none{
          .samples = {}, .indices = {}, .step = epoch * inputs.steps_per_epoch + begin / group + 1, .packed = packed};
      if (none.step > inputs.total_steps) break;
      MicroBatchCutter cutter(options);
      MicroBatchShape batch = none;
      for (int64_t i = begin; i < std::min(begin + group, size); ++i) {
        const auto index = static_cast<size_t>(order[static_cast<size_t>(i)]);
        if (cutter.starts_micro_batch(i - begin, lengths[index].tokens)) consider(std::exchange(batch, none));
        if (lengths[index].tokens == 0) continue;
        batch.samples.push_back(lengths[index]);
        batch.indices.push_back(static_cast<int64_t>(index));
      }
      consider(std::move(batch));
    }
  }
  return worst;
}

MemoryPlan plan_memory(const RunInputs& inputs, const MicroBatchShape& worst) {
  const PassShape shape = shape_of(worst);
  const TrainedSize size = trained_size(inputs);
  const PassTypes types = pass_types(inputs);
  const Moment moment = pass_moment(inputs, shape);
  MemoryPlan plan{.parts = {}, .moment = moment.name};
  const auto add = [&](const std::string& name, double bytes) {
    if (bytes > 0) plan.parts.push_back({name, bytes});
    plan.peak += std::max(0.0, bytes);
  };
  add("frozen weights", (size.frozen - size.coded) * types.weight + size.coded_bytes);
  add("trainables", 4 * size.trained);
  add("gradients", moment.gradients);
  add(inputs.recipe.optim.name == "adamw8bit" ? "Adam's moments in 8 bits" : "Adam's moments",
      inputs.recipe.optim.offload && types.gpu ? 0 : size.moments);
  for (const auto& [part, bytes] : moment.activations) add("activations, " + part, bytes);
  add("temporaries", moment.temporaries);
  add("pixels", moment.pixels);
  if (types.gpu) {
    add("workspace", kGpuWorkspace);
    add("the checkpoint being written", 4 * size.trained + (inputs.recipe.optim.offload ? 0 : size.moments));
  } else {
    add("samples read ahead", samples_ahead(inputs, shape));
    const bool compiles = inputs.precision.compute == at::kBFloat16;
    add("LibTorch's code", kLibraryPages);
    add(compiles ? "oneDNN's compiled products" : "MKL's buffers",
        compiles ? static_cast<double>(kCachedProducts * kCachedProductBytes) : kMklBuffers);
  }
  plan.free = free_memory_now(inputs.device);
  return plan;
}

}  // namespace lft
