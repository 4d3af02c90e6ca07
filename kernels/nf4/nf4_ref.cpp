#include <algorithm>
#include <cmath>

#include "kernels/nf4/nf4.h"

namespace lft {
namespace {

/// Computed without branches.
int nearest_nf4(const Nf4Middles& middle, float x) {
  int code = 0;
  for (const float border : middle.value) code += x > border ? 1 : 0;
  return code;
}

}  // namespace

const Nf4Map& nf4_map() {
  static constexpr Nf4Map kMap = {
      {-1.0f, -0.6961928009986877f, -0.5250730514526367f, -0.39491748809814453f,
       -0.28444138169288635f, -0.18477343022823334f, -0.09105003625154495f, 0.0f,
       0.07958029955625534f, 0.16093020141124725f, 0.24611230194568634f, 0.33791524171829224f,
       0.44070982933044434f, 0.5626170039176941f, 0.7229568362236023f, 1.0f}};
  return kMap;
}

Nf4Middles nf4_middles() {
  Nf4Middles result;
  for (int i = 0; i < 15; ++i) result.value[i] = (nf4_map().value[i] + nf4_map().value[i + 1]) / 2;
  return result;
}

void nf4_quantize_blocks(const float* w, int64_t first, int64_t n, float* scales,
                         const Nf4Weight& to) {
  const Nf4Middles middle = nf4_middles();
  for (int64_t block = first; block < first + n; ++block) {
    const int64_t begin = block * kNf4Block, end = std::min(begin + kNf4Block, to.count);
    float absmax = 0;
    for (int64_t i = begin; i < end; ++i) absmax = std::max(absmax, std::abs(w[i]));
    scales[block] = absmax;
    for (int64_t i = begin; i < end; ++i) {
      const int code = nearest_nf4(middle, absmax > 0 ? w[i] / absmax : 0.0f);
      uint8_t& pair = to.codes[i / 2];
      pair = static_cast<uint8_t>(i % 2 == 0 ? code << 4 : pair | code);
    }
  }
}

void nf4_quantize_scales(const float* scales, Nf4Weight& to) {
  const int64_t blocks = nf4_blocks(to.count);
  double sum = 0;
  for (int64_t b = 0; b < blocks; ++b) sum += scales[b];
  to.scale_offset = blocks == 0 ? 0 : static_cast<float>(sum / static_cast<double>(blocks));
  const CodeMap& map = code_maps().exp_avg;
  for (int64_t first = 0; first < blocks; first += kNf4ScaleBlock) {
    const int64_t end = std::min(first + kNf4ScaleBlock, blocks);
    float absmax = 0;
    for (int64_t b = first; b < end; ++b)
      absmax = std::max(absmax, std::abs(scales[b] - to.scale_offset));
    to.scale_absmax[first / kNf4ScaleBlock] = absmax;
    for (int64_t b = first; b < end; ++b) {
      to.scale_codes[b] = static_cast<uint8_t>(
          nearest_code(map, absmax > 0 ? (scales[b] - to.scale_offset) / absmax : 0.0f));
    }
  }
}

void nf4_dequantize_ref(const Nf4Weight& from, FloatType type, Nf4Range range, void* out) {
  const float* scale_values = code_maps().exp_avg.value;
  for (int64_t i = range.first; i < range.first + range.count; ++i) {
    const int64_t block = i / kNf4Block;
    const volatile float product =
        scale_values[from.scale_codes[block]] * from.scale_absmax[block / kNf4ScaleBlock];
    const volatile float scale = product + from.scale_offset;  // prevents a fused multiply-add
    const int code = i % 2 == 0 ? from.codes[i / 2] >> 4 : from.codes[i / 2] & 15;
    store_float(type, out, i - range.first, nf4_map().value[code] * scale);
  }
}

}  // namespace lft
