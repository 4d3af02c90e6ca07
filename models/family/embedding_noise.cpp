#include "models/family/embedding_noise.h"

#include <ATen/Context.h>
#include <ATen/Functions.h>

#include "kernels/common/error.h"
#include "models/ops/core/copy_to_device.h"
#include "models/ops/core/precision.h"

namespace lft::family {
namespace {

constexpr uint64_t kStream = 0x4e4546;  // separates this stream from other draws of the run's seed

/// SplitMix64's finaliser (Steele et al. 2014).
uint64_t mixed(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

uint64_t noise_seed(const ops::DropoutPosition& at) {
  return mixed(mixed(mixed(at.seed ^ kStream) ^ at.step) ^ at.micro_batch);
}

/// The length of each position's sequence: float32 [b * t, 1], on the CPU.
at::Tensor sequence_lengths(const Batch& batch) {
  const int64_t width = batch.input_ids_bt.size(1);
  if (!batch.packed) {
    return batch.lengths_b.to(at::kFloat).clamp_min(1).repeat_interleave(width).unsqueeze(1);
  }
  at::Tensor lengths = at::ones({width, 1}, at::kFloat);
  const std::vector<int64_t>& starts = batch.packed->starts;
  for (size_t i = 0; i + 1 < starts.size(); ++i) {
    const int64_t own = starts[i + 1] - starts[i];
    const auto whole = static_cast<double>(batch.packed->length(i));
    if (own > 0) lengths.narrow(0, starts[i], own).fill_(whole);
  }
  return lengths;
}

}  // namespace

at::Tensor embedding_noise(const Batch& batch, const at::Tensor& embeds_btd, double alpha) {
  const ops::DropoutPosition* const position = ops::dropout_position();
  if (position == nullptr)
    throw Error(ErrorKind::kInternal, "embedding_noise: outside of a training pass");
  const at::Device device = embeds_btd.device();
  at::Generator generator = at::globalContext().defaultGenerator(device).clone();
  generator.set_current_seed(noise_seed(*position));
  const int64_t hidden = embeds_btd.size(2);
  const at::Tensor most = ops::copy_to_device(
      sequence_lengths(batch).mul_(static_cast<double>(hidden)).rsqrt_().mul_(alpha), device);
  at::Tensor noise = at::rand({embeds_btd.size(0) * embeds_btd.size(1), hidden}, generator,
                              at::TensorOptions().dtype(at::kFloat).device(device));
  return noise.mul_(2).sub_(1).mul_(most).view(embeds_btd.sizes()).to(embeds_btd.scalar_type());
}

}  // namespace lft::family
