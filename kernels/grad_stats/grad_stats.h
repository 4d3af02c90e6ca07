// One pass over all gradients: unscaling in place, a non-finite check with the first bad tensor,
// squared norms, and from them found_inf and the clip coefficient, which stay in device memory for
// the optimizer. Any mix of sizes and float types, in two launches.
#pragma once
#include <cmath>

#include "kernels/common/chunks.h"
#include "kernels/common/float_type.h"

namespace lft {

/// One gradient: `count` elements, aligned for its element type (16-byte alignment enables wide
/// loads). Absent: data null, count 0.
struct GradTensor {
  void* data = nullptr;
  int64_t count = 0;
  int64_t first_chunk = 0;  // set by number_chunks()
  FloatType type = FloatType::kF32;
};

/// The result of a check, in the memory of the gradients' device.
struct GradControl {
  double squared_norm =
      0;  // over all unscaled gradients, before clipping; finite exactly if every element is
  double loss = 0;         // the checked loss, 0 without one
  int32_t first_bad = -1;  // index of the first tensor with a NaN or an infinity, -1: none
  int32_t loss_bad = 0;    // 1: the loss is not finite
  float clip = 1;  // min(1, max_norm / (norm + 1e-6)); 1 when max_norm is 0 or found_inf is set
  float found_inf = 0;  // 1: a gradient or the loss is not finite, the update is a no-op
  uint32_t ticket = 0;  // internal to the kernel: number of finished blocks
  uint32_t unused = 0;
};

/// Each element becomes type(float(g) * inv_scale), in float32; nothing is written if inv_scale is
/// 1. The stored values are checked and summed, so an overflow in unscaling is detected. A double
/// can sum 2^63 squares of float32.
struct GradStatsArgs {
  const GradTensor* tensors = nullptr;  // [count], in the memory of the executing device
  int64_t count = 0, chunks = 0;        // count < 2^31; chunks: the result of number_chunks()
  float inv_scale = 1;                  // finite, above 0
  double max_norm = 0;                  // 0: no clipping
  const double* loss = nullptr;         // also checked; null: no loss
  double* squares = nullptr;  // [count]: sum of squares of each unscaled gradient, 0 if absent
  GradControl* control = nullptr;
};

/// Reference implementation: sums in double, element by element.
void grad_stats_ref(const GradStatsArgs& args);
/// The same on the GPU, asynchronous. The order of the sums depends on the counts only, so results
/// are bit-reproducible. partials: [chunks], scratch. Only in builds with CUDA. Throws kInternal if
/// the launch fails.
void grad_stats(const GradStatsArgs& args, double* partials, Stream stream);

/// Computes the other fields from the sums; the ticket is unchanged.
LFT_HOST_DEVICE void decide(GradControl& control, double squared_norm, int32_t first_bad,
                            const double* loss, double max_norm) {
  const bool loss_bad = loss != nullptr && !(fabs(*loss) <= 1.7976931348623157e308);
  const bool found_inf = loss_bad || first_bad >= 0;
  const double clip = max_norm > 0 && !found_inf ? max_norm / (sqrt(squared_norm) + 1e-6) : 1.0;
  control.squared_norm = squared_norm;
  control.first_bad = first_bad;
  control.loss = loss != nullptr ? *loss : 0.0;
  control.loss_bad = loss_bad ? 1 : 0;
  control.clip = clip < 1.0 ? static_cast<float>(clip) : 1.0f;
  control.found_inf = found_inf ? 1.0f : 0.0f;
}

}  // namespace lft
