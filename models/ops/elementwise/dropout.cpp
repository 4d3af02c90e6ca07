#include "models/ops/elementwise/dropout.h"

#include <ATen/ATen.h>

#include <cmath>

#include "kernels/common/error.h"
#include "kernels/common/philox.h"
#include "models/ops/core/cpu_loops.h"
#include "models/ops/core/dispatch.h"
#include "models/ops/core/parallel.h"
#include "models/ops/core/precision.h"
#ifdef LFT_HAVE_CUDA
#include "models/ops/core/device_call.h"
#endif

namespace lft::ops {
namespace {

/// y (+)= x * mask * scale by the kernel, in one pass; false if there is no kernel. x and y: one
/// dtype.
bool run_kernel([[maybe_unused]] const at::Tensor& x, [[maybe_unused]] at::Tensor& y,
                [[maybe_unused]] const DropoutMask& mask, [[maybe_unused]] bool add) {
#ifdef LFT_HAVE_CUDA
  if (!has_kernel(x, y)) return false;
  on_device_of(x, [&](Stream stream) {
    dropout(*float_type(x.scalar_type()), x.const_data_ptr(), y.mutable_data_ptr(), x.numel(),
            dropout_args(mask, add), stream);
  });
  return true;
#else
  return false;
#endif
}

void run_loop(const at::Tensor& x, at::Tensor& y, const DropoutMask& mask, bool add) {
  with_loop_type(x.scalar_type(), [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    const int64_t n = x.numel(), blocks = (n + 7) / 8;
    parallel_for(blocks, kLoopGrain / 32, [&](int64_t begin, int64_t end) {
      const int64_t first = begin * 8, last = std::min(n, end * 8);
      loops::dropout(x.const_data_ptr<T>() + first, y.mutable_data_ptr<T>() + first, first,
                     last - first, mask, add);
    });
  });
}

/// The factors 0 and scale as float32 on x's device: drawn on the CPU by the same loop, so that the
/// mask is the same on every device.
at::Tensor factors(const at::Tensor& x, const DropoutMask& mask) {
  at::Tensor ones = at::ones(x.sizes(), at::TensorOptions().dtype(at::kFloat));
  run_loop(ones, ones, mask, /*add=*/false);
  return ones.to(x.device());
}

}  // namespace

const uint64_t* DropoutStreams::place(const std::string& path) {
  const auto [found, is_new] = index_.try_emplace(path, static_cast<int64_t>(paths_.size()));
  if (is_new) {
    if (found->second >= at_m_.numel())
      throw Error(ErrorKind::kInternal, "DropoutStreams: more modules than places");
    paths_.push_back(path);
  }
  return found->second < placed_
             ? reinterpret_cast<const uint64_t*>(at_m_.const_data_ptr<int64_t>()) + found->second
             : nullptr;
}

std::vector<uint64_t> DropoutStreams::at(uint64_t step, uint64_t micro_batch) const {
  std::vector<uint64_t> streams;
  for (const std::string& path : paths_)
    streams.push_back(philox_stream(path.data(), path.size(), step, micro_batch));
  return streams;
}

DropoutMask dropout_mask(double p, const std::string& path) {
  DropoutMask mask;
  const DropoutPosition* position = dropout_position();
  if (position == nullptr || p <= 0) return mask;
  mask.seed = position->seed;
  mask.stream = philox_stream(path.data(), path.size(), position->step, position->micro_batch);
  if (position->streams != nullptr) mask.stream_at = position->streams->place(path);
  mask.threshold = static_cast<uint32_t>(std::min(65535.0, std::round(p * 65536.0)));
  mask.scale = static_cast<float>(65536.0 / (65536.0 - mask.threshold));
  return mask;
}

at::Tensor dropout(const at::Tensor& x, const DropoutMask& mask) {
  if (mask.threshold == 0) return x;
  const at::Tensor from = x.contiguous();
  at::Tensor y = at::empty_like(from);
  if (run_kernel(from, y, mask, /*add=*/false)) return y;
  if (!has_loop(from)) return (from.to(at::kFloat) * factors(from, mask)).to(x.scalar_type());
  run_loop(from, y, mask, /*add=*/false);
  return y;
}

void add_dropout(at::Tensor& y, const at::Tensor& x, const DropoutMask& mask) {
  const at::Tensor from = x.contiguous();
  if (has_loop(from) && has_loop(y)) return run_loop(from, y, mask, /*add=*/true);
  if (run_kernel(from, y, mask, /*add=*/true)) return;
  y.add_(dropout(from, mask));
}

}  // namespace lft::ops
