#include "src/train/run/rehearsal.h"

#include <ATen/Functions.h>

#include <algorithm>

#include "models/ops/weight/masters.h"
#include "src/base/errors.h"
#include "src/base/text.h"
#include "src/data/batch.h"
#include "src/data/shared_prompt.h"
#include "src/io/image.h"
#include "src/train/memory/memory_plan.h"

namespace lft::train {
namespace {

/// The samples as the loader would return them; unreadable ones are left to the step that needs
/// them.
std::vector<data::Sample> load(const data::Dataset& dataset, const std::vector<int64_t>& indices) {
  std::vector<data::Sample> samples;
  for (const int64_t index : indices) {
    try {
      for (data::Sample& side : dataset.sides(index)) {
        if (std::isnan(side.reference)) side.reference = 0;  // no figure of the pass is used
        samples.push_back(std::move(side));
      }
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kInput) throw;
    }
  }
  return samples;
}

/// The sizes that determine a micro-batch's memory.
struct Size {
  size_t positions = 0, images = 0;  // including padding and fill
  int64_t values = 0;                // of the images
  int64_t supervised = 0;
};
Size size_of(const std::vector<data::Sample>& samples, const data::BatchLayout& layout) {
  Size size;
  size_t longest = 0;
  for (const data::Sample& sample : samples) {
    longest = std::max(longest, sample.input_ids.size());
    size.images += sample.images.size();
    for (const data::PixelImage& image : sample.images) size.values += image.shape.values();
    size.supervised += sample.supervised();
  }
  const int64_t total = data::packed_positions(samples, layout.encode.share_prompts);
  size.positions = layout.packs() ? static_cast<size_t>(total) : longest * samples.size();
  if (layout.fill_up > 0)
    size.positions = static_cast<size_t>(data::filled_tokens(total, layout.fill_up));
  return size;
}
bool is_within(const Size& small, const Size& large) {
  return small.positions <= large.positions && small.images <= large.images &&
         small.values <= large.values && small.supervised <= large.supervised;
}

/// After a recovery a micro-batch may run in parts: keeps the largest part.
void keep_part(std::vector<data::Sample>& samples, int64_t split) {
  if (split == 1) return;
  std::stable_sort(samples.begin(), samples.end(),
                   [](const data::Sample& a, const data::Sample& b) {
                     return a.input_ids.size() > b.input_ids.size();
                   });
  const auto parts = static_cast<size_t>(split);
  samples.resize((samples.size() + parts - 1) / parts);
}

/// Releases the gradients on every exit path.
class NoGradientsLeft {
 public:
  explicit NoGradientsLeft(Optimizer& optimizer) : optimizer_(optimizer) {
    optimizer_.drop_gradients();
  }
  ~NoGradientsLeft() { optimizer_.drop_gradients(); }
  NoGradientsLeft(const NoGradientsLeft&) = delete;

 private:
  Optimizer& optimizer_;
};

}  // namespace

Rehearsal rehearse_worst(Run& run, const StepOptions& options, MemoryWatch& watch, bool proved) {
  const data::BatchLayout layout = batch_layout(run);
  run.worst = worst_micro_batch(run, sample_lengths(run.data));
  const MicroBatchShape& worst = *run.worst;
  const auto reading =
      run.device.is_cpu() ? static_cast<int64_t>(worst.reading) : 0;  // in the same memory
  run.data.encode.reading->allow(static_cast<int64_t>(worst.reading));
  Rehearsal result{.step = worst.step, .ids = {}};
  std::vector<data::Sample> samples = load(*run.data.train, worst.indices);
  keep_part(samples, run.state.split);
  data::BatchLayout probed = layout;
  probed.fill_up = 0;
  const Size size = size_of(samples, layout);
  if (size.supervised == 0 || (proved && reading < static_cast<int64_t>(io::kLargeBlock) &&
                               is_within(size, size_of(run.probe.samples, probed))))
    return result;
  result.ran = true;
  result.rows = samples.size();
  result.packed = layout.packs();
  result.tokens = layout.packs() ? size.positions : size.positions / samples.size();
  result.images = size.images;
  for (const data::Sample& sample : samples) result.ids.push_back(sample.id);

  const NoGradientsLeft clean(run.optimizer);
  run.optimizer.zero_gradients();
  run.optimizer.refresh_copies(run.state.compute);
  const ops::DirectGradientsGuard direct;
  watch.reset_peak();
  const io::Pixels read(static_cast<size_t>(reading));
  objective::ForwardContext context = step_context(options, run.state);
  context.normaliser = options.objective->normaliser(
      {.supervised = size.supervised, .rows = static_cast<int64_t>(samples.size())});
  const at::Tensor loss =
      objective::forward_loss(context, run.model.model, make_batch(layout, samples));
  if (loss.requires_grad()) loss.backward();
  loss.item<double>();  // waits until the device is done
  result.peak = watch.peak();
  return result;
}

std::string describe_rehearsal(const Rehearsal& rehearsal) {
  if (!rehearsal.ran)
    return "memory test: skipped, the gradient check already ran the largest micro-batch";
  return "memory test: ran the largest micro-batch, of step " + std::to_string(rehearsal.step) +
         " (" + join_names(rehearsal.ids, 4) + "): " + std::to_string(rehearsal.rows) +
         (rehearsal.packed ? " rows packed, " : " rows of up to ") +
         std::to_string(rehearsal.tokens) + " tokens, " + std::to_string(rehearsal.images) +
         " images; tensors take " + format_bytes(static_cast<double>(rehearsal.peak)) + " at most";
}

}  // namespace lft::train
