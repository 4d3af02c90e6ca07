#include <algorithm>
#include <limits>
#include <vector>

#include "kernels/adamw8/adamw8.h"

namespace lft {
namespace {

/// Decade e (from 0, the smallest) is divided into 2^e (signed, with both signs) or 2^(e + 1) equal
/// parts, whose midpoints are the values.
CodeMap make_map(bool is_signed) {
  std::vector<double> values = {0, 1};
  for (int decade = 0; decade < 7; ++decade) {
    const int parts = 1 << (is_signed ? decade : decade + 1);
    const double top = std::pow(10.0, decade - 6);
    for (int part = 0; part < parts; ++part) {
      const double value = top * (0.1 + 0.9 * (part + 0.5) / parts);
      values.push_back(value);
      if (is_signed) values.push_back(-value);
    }
  }
  std::sort(values.begin(), values.end());
  CodeMap map;
  for (int i = 0; i < 256; ++i) map.value[i] = static_cast<float>(values.at(i));
  for (int i = 0; i < 255; ++i) map.middle[i] = (map.value[i] + map.value[i + 1]) * 0.5f;
  map.middle[255] = std::numeric_limits<float>::infinity();
  return map;
}

/// Converts the moments of one block to float32 and back.
void read_block(const CodeMap& map, const uint8_t* codes, float absmax, int64_t count,
                double* moment) {
  for (int64_t i = 0; i < count; ++i) moment[i] = static_cast<double>(map.value[codes[i]]) * absmax;
}
void write_block(const CodeMap& map, const double* moment, int64_t count, uint8_t* codes,
                 float* absmax) {
  *absmax = 0;
  for (int64_t i = 0; i < count; ++i)
    *absmax = std::max(*absmax, std::abs(static_cast<float>(moment[i])));
  for (int64_t i = 0; i < count; ++i) {
    const double x =
        *absmax == 0 ? map.value[0] : static_cast<double>(static_cast<float>(moment[i])) / *absmax;
    const auto distance = [&](float value) { return std::abs(x - value); };
    codes[i] = static_cast<uint8_t>(
        std::min_element(map.value, map.value + 256,
                         [&](float a, float b) { return distance(a) < distance(b); }) -
        map.value);
  }
}

void update_block(const AdamW8Args& args, const AdamW8Item& item, int64_t first) {
  const double clip = args.control->clip;
  const int64_t count = std::min(kMomentBlock, item.count - first), block = first / kMomentBlock;
  double m[kMomentBlock], v[kMomentBlock];
  read_block(args.maps->exp_avg, item.exp_avg + first, item.exp_avg_absmax[block], count, m);
  read_block(args.maps->exp_avg_sq, item.exp_avg_sq + first, item.exp_avg_sq_absmax[block], count,
             v);
  for (int64_t i = 0; i < count; ++i) {
    const double g = load_float(item.type, item.grad, first + i) * clip, p = item.param[first + i];
    m[i] += (1 - args.beta1) * (g - m[i]);
    v[i] = args.beta2 * v[i] + (1 - args.beta2) * g * g;
    item.param[first + i] = static_cast<float>(
        p - item.decay * p -
        item.step_size * m[i] / (std::sqrt(v[i]) * item.inverse_root + args.eps));
    write_shadow(item.shadow, first + i, item.param[first + i]);
  }
  write_block(args.maps->exp_avg, m, count, item.exp_avg + first, item.exp_avg_absmax + block);
  write_block(args.maps->exp_avg_sq, v, count, item.exp_avg_sq + first,
              item.exp_avg_sq_absmax + block);
}

}  // namespace

const CodeMaps& code_maps() {
  static const CodeMaps maps = {make_map(/*is_signed=*/true), make_map(/*is_signed=*/false)};
  return maps;
}

void adamw8_ref(const AdamW8Args& args) {
  if (args.control->found_inf != 0) return;
  for (int64_t t = 0; t < args.count; ++t) {
    for (int64_t first = 0; first < args.items[t].count; first += kMomentBlock)
      update_block(args, args.items[t], first);
  }
}

}  // namespace lft
