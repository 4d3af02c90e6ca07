// The CPU loops of the optimizer step on raw pointers: one pass over memory, compiled for AVX-512,
// AVX2 and baseline. Single-threaded: callers split into chunks (kernels/common/chunks.h).
#pragma once
#include <cstddef>
#include <vector>

#include "kernels/adamw8/adamw8.h"

namespace lft::ops::loops {

/// g = type(g * inv_scale), not written if inv_scale is 1; returns the sum of squares of the stored
/// values, in double.
double unscale_squares(FloatType type, void* g, int64_t n, float inv_scale);

struct GradLoop {
  FloatType type;
  const void* data;
};
/// adamw_element on n elements. All arrays are disjoint.
void adamw(float* param, const GradLoop& grad, float* exp_avg, float* exp_avg_sq, int64_t n,
           const AdamWRates& rates);

/// to = type(x * scale), like write_shadow(). Disjoint; `type` has 16 bits.
void shadow(FloatType type, void* to, const float* x, int64_t n, float scale);

/// nearest_code() by two look-ups: floats with the same sign, exponent and seven leading mantissa
/// bits are one bucket, which contains at most one midpoint.
class CodeBuckets {
 public:
  explicit CodeBuckets(const CodeMap& map);
  static constexpr int kShift = 16;                    // 23 mantissa bits minus seven
  static constexpr int32_t kLowest = (127 - 24) << 7;  // 2^-24 and everything below
  static constexpr int32_t kPositive =
      (127 << 7) - kLowest + 1;  // buckets up to 1; those of negative numbers follow
  const int32_t* first() const { return first_.data(); }  // the code of each bucket's lowest number

 private:
  std::vector<int32_t> first_;
};
/// A code map and its buckets.
struct MomentCode {
  const CodeMap& map;
  CodeBuckets buckets = CodeBuckets(map);
};

/// A quantized moment of n elements in whole blocks (the last may be shorter).
struct MomentLoop {
  uint8_t* codes;
  float* absmax;
  const MomentCode& code;
};
/// adamw_element on n elements, with moments dequantized before and quantized after. All arrays are
/// disjoint.
void adamw8(float* param, const GradLoop& grad, const MomentLoop& exp_avg,
            const MomentLoop& exp_avg_sq, int64_t n, const AdamWRates& rates);

}  // namespace lft::ops::loops
