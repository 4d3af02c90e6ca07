// One pass over all gradients: unscale in place, non-finite check with the first bad tensor,
// squared norms, and from them the decision to step and the clip coefficient, left in device memory
// for the optimizer. Any mix of sizes and float types, in two launches.
#pragma once
#include <cmath>

#include "kernels/common/chunks.h"
#include "kernels/common/float_type.h"

namespace lft {

/// One gradient: `count` elements, aligned as its element type demands (16 bytes make the loads
/// wide). Absent: data null, count 0.
struct GradTensor {
  void* data = nullptr;
  int64_t count = 0;
  int64_t first_chunk = 0;  // number_chunks()
  FloatType type = FloatType::kF32;
};

/// What a check leaves in the memory of the gradients' device.
struct GradControl {
  double squared_norm =
      0;  // of all unscaled gradients, before clipping; finite exactly when every element is
  double loss = 0;         // as it was checked, 0 without one
  int32_t first_bad = -1;  // index of the first tensor with a NaN or an infinity, -1: none
  int32_t loss_bad = 0;    // 1: the loss is not finite
  float clip = 1;  // min(1, max_norm / (norm + 1e-6)); 1 when max_norm is 0 or found_inf is set
  float found_inf = 0;  // 1: a gradient or the loss is not finite, the update is a no-op
  uint32_t ticket = 0;  // the kernel's own: blocks that are done
  uint32_t unused = 0;
};

/// Each element becomes type(float(g) * inv_scale), in float32; nothing is written when inv_scale
/// is 1. What is stored is what is checked and summed, so that an unscale that overflows is found
/// too. The square of a float32 fits a double with room for 2^63 of them.
struct GradStatsArgs {
  const GradTensor* tensors = nullptr;  // [count], in the memory of the device that runs
  int64_t count = 0, chunks = 0;        // count < 2^31; chunks: what number_chunks() said
  float inv_scale = 1;                  // finite, above 0
  double max_norm = 0;                  // 0: no clipping
  const double* loss = nullptr;         // checked too; null: not
  double* squares = nullptr;  // [count]: sum of squares of each unscaled gradient, 0 where absent
  GradControl* control = nullptr;
};

/// The definition of correct: sums in double, element by element.
void grad_stats_ref(const GradStatsArgs& args);
/// The same on the GPU, asynchronous. The order of the sums depends on the counts alone, so results
/// are bit-reproducible. partials: [chunks], scratch. Built with CUDA only. Throws kInternal when
/// the launch fails.
void grad_stats(const GradStatsArgs& args, double* partials, Stream stream);

/// What follows from the sums; the ticket is left alone.
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
