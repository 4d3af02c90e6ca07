// AdamW with both moments in 8 bits (Dettmers et al. 2022, "8-bit Optimizers via Block-wise
// Quantization") over a list of tensors in one launch: the moments are dequantized, updated as in
// kernels/adamw, and quantized again.
#pragma once
#include "kernels/adamw/adamw.h"

namespace lft {

constexpr int64_t kMomentBlock =
    256;  // adjacent elements that share a scale; a chunk consists of whole blocks
static_assert(kChunk % kMomentBlock == 0);

/// The dynamic data type, ascending: `value` from -1 (or 0) to 1, dense around 0. A number x of a
/// block whose largest magnitude is absmax is stored as the code of the value nearest to x /
/// absmax; of two equally near ones, the lower. A block of zeros has absmax 0 and codes 0.
struct CodeMap {
  float value[256];
  float middle[256];  // (value[i] + value[i + 1]) / 2, the last one infinite
};
struct CodeMaps {
  CodeMap exp_avg, exp_avg_sq;  // signed, unsigned
};
/// Seven decades, each with half as many values as the next larger one: bitsandbytes'
/// create_dynamic_map, each value rounded once.
const CodeMaps& code_maps();

/// The number of midpoints below x; 0 for NaN.
LFT_HOST_DEVICE int nearest_code(const CodeMap& map, float x) {
  int code = 0;
  for (int step = 128; step > 0; step /= 2) code += map.middle[code + step - 1] < x ? step : 0;
  return code;
}

/// One tensor. param, codes, grad: `count` elements each; absmax: one float per block. Disjoint,
/// aligned for their element types.
struct AdamW8Item {
  float* param = nullptr;
  uint8_t *exp_avg = nullptr, *exp_avg_sq = nullptr;
  float *exp_avg_absmax = nullptr, *exp_avg_sq_absmax = nullptr;
  const void* grad = nullptr;
  int64_t count = 0;
  int64_t first_chunk = 0;                            // set by number_chunks()
  double step_size = 0, inverse_root = 1, decay = 0;  // set by set_rates()
  FloatType type = FloatType::kF32;
  ShadowPlace shadow;  // copy of param
};

/// Unless control->found_inf is set (then nothing is written): a moment is value[code] * absmax, in
/// float32, followed by AdamWArgs' update. The parameter is updated with the new moments before
/// they are quantized.
struct AdamW8Args {
  const AdamW8Item* items = nullptr;  // [count], in the memory of the executing device
  int64_t count = 0, chunks = 0;      // chunks: the result of number_chunks()
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
  const GradControl* control = nullptr;
  const CodeMaps* maps = nullptr;  // code_maps() in the same memory
};

/// Reference implementation: in double, rounded once to float32 when stored; codes are found by a
/// search over all 256 values.
void adamw8_ref(const AdamW8Args& args);
/// The same on the GPU in float32, asynchronous. Blocks are independent, so results are
/// bit-reproducible. Only in builds with CUDA. Throws kInternal if the launch fails.
void adamw8(const AdamW8Args& args, Stream stream);

}  // namespace lft
