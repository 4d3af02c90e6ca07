#include "src/train/memory/micro_batch.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <thread>
#include <utility>

#include "src/train/inputs/run_data.h"
#include "src/train/memory/moment.h"

namespace lft::train {
namespace {

constexpr int64_t kMostEpochs = 100;

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

}  // namespace

LargestMicroBatch::Tangent LargestMicroBatch::tangent(const RunSettings& settings, int64_t images) {
  const family::ImagePlan image = family::reference_image_plan(settings.config);
  const auto with_images = [&](PassShape shape, int64_t count) {
    shape.images = count;
    shape.values = count * image.shape.values();
    shape.tower = count * image.tower_positions;
    shape.placed = count * image.positions();
    return shape;
  };
  const PassShape base = with_images(
      {.samples = 4, .rows = 4, .longest = 1024, .supervised = 1024, .attended = 4096}, images);
  const auto total = [&](PassShape shape) {
    return plain_moment(settings, memory_units(settings, shape), shape, /*update=*/0).total();
  };
  const double start = total(base);
  PassShape longer = base, asked = base;
  const PassShape more = with_images(base, images + 4);
  longer.longest *= 2, longer.attended *= 2;
  asked.supervised *= 2;
  Tangent at{.token = (total(longer) - start) / 4096,
             .tower = (total(more) - start) / static_cast<double>(more.tower - base.tower),
             .supervised = (total(asked) - start) / 1024};
  at.constant =
      start - at.token * 4096 - at.tower * static_cast<double>(base.tower) - at.supervised * 1024;
  return at;
}

LargestMicroBatch::LargestMicroBatch(const RunSettings& settings)
    : tangents_{tangent(settings, /*images=*/0), tangent(settings, /*images=*/4)} {}

void LargestMicroBatch::consider(MicroBatchShape batch) {
  const auto positions = static_cast<double>(batch.positions()),
             tower = static_cast<double>(batch.sum(&data::SampleLength::tower)),
             supervised = static_cast<double>(batch.supervised());
  double bytes = -std::numeric_limits<double>::infinity();
  for (const Tangent& at : tangents_) {
    bytes = std::max(
        bytes, at.constant + at.token * positions + at.tower * tower + at.supervised * supervised);
  }
  if (supervised == 0 || bytes <= most_) return;
  most_ = bytes;
  largest_ = std::move(batch);
}

int64_t MicroBatchShape::longest() const {
  return samples.empty() ? 0 : std::ranges::max(samples, {}, &data::SampleLength::longest).longest;
}
int64_t MicroBatchShape::positions() const {
  return attended() - (packed ? sum(&data::SampleLength::shared) : 0);
}
int64_t MicroBatchShape::attended() const {
  return packed ? sum(&data::SampleLength::tokens) : rows() * longest();
}

MicroBatchShape worst_micro_batch(const RunSettings& settings,
                                  const std::vector<data::SampleLength>& lengths) {
  const data::LoaderOptions options = loader_options(settings, lengths);
  const int64_t size = data::epoch_size(options, std::ssize(lengths)),
                group = options.batch_size * options.grad_accum;
  const bool packed = options.max_tokens > 0 || settings.shares_prompts;
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
        if (cutter.starts_micro_batch(i - begin, lengths[index].packed())) {
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

}  // namespace lft::train
