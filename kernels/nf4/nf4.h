// NF4 storage of frozen weights with double quantization (Dettmers et al. 2023, "QLoRA"), bitwise
// in bitsandbytes' layout: 4-bit codes for quantiles of the normal distribution, one scale per 64
// adjacent weights, the scales in 8 bits.
#pragma once
#include "kernels/adamw8/adamw8.h"

namespace lft {

constexpr int64_t kNf4Block = 64;        // weights that share a scale
constexpr int64_t kNf4ScaleBlock = 256;  // scales that share a second-level scale

/// The 16 code values, ascending from -1 to 1; value 7 is 0.
struct Nf4Map {
  float value[16];
};
const Nf4Map& nf4_map();

/// Midpoints between adjacent values, in float32: a weight's code is the number of those below it.
struct Nf4Middles {
  float value[15];
};
Nf4Middles nf4_middles();

inline int64_t nf4_blocks(int64_t count) { return (count + kNf4Block - 1) / kNf4Block; }
inline int64_t nf4_scale_blocks(int64_t count) {
  return (nf4_blocks(count) + kNf4ScaleBlock - 1) / kNf4ScaleBlock;
}

/// `count` weights w. codes: two per byte, the first in the high half, [(count + 1) / 2]. The scale
/// of block b, the largest magnitude in it, is
///   scale[b] = scale_values[scale_codes[b]] * scale_absmax[b / 256] + scale_offset, scale_values:
///   code_maps().exp_avg.value
/// and w[i] = value[code i] * scale[i / 64], each operation rounded to float32.
struct Nf4Weight {
  int64_t count = 0;
  uint8_t *codes = nullptr, *scale_codes = nullptr;  // [(count + 1) / 2], [nf4_blocks]
  float* scale_absmax = nullptr;                     // [nf4_scale_blocks]
  float scale_offset = 0;                            // the mean of all scales
};

/// Quantizes finite w on the host, in two parts. For blocks first .. first + n - 1: a weight gets
/// the value nearest to w / scale (of two equally near ones, the lower) with its block's exact
/// scale, which is written to scales [nf4_blocks]. Blocks may be quantized concurrently.
void nf4_quantize_blocks(const float* w, int64_t first, int64_t n, float* scales,
                         const Nf4Weight& to);
/// The same codes and scales for all blocks of `count` weights w of `type`, on the GPU and
/// asynchronous; codes and scales: on the device. Only in builds with CUDA. Throws kInternal if the
/// launch fails.
void nf4_quantize_on_device(FloatType type, const void* w, int64_t count, float* scales,
                            uint8_t* codes, Stream stream);
/// After all blocks: the scales minus their mean, quantized like 8-bit moments, 256 at a time.
void nf4_quantize_scales(const float* scales, Nf4Weight& to);

/// Weights first .. first + count - 1; first is a multiple of kNf4Block.
struct Nf4Range {
  int64_t first = 0, count = 0;
};
/// These weights as `type`.
void nf4_dequantize_ref(const Nf4Weight& from, FloatType type, Nf4Range range, void* out);
/// The same bits on the GPU, asynchronous; scale_values: on the device. Only in builds with CUDA.
/// Throws kInternal if the launch fails.
void nf4_dequantize(const Nf4Weight& from, const float* scale_values, FloatType type,
                    Nf4Range range, void* out, Stream stream);

}  // namespace lft
