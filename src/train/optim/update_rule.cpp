#include "src/train/optim/update_rule.h"

#include <c10/util/accumulate.h>

namespace lft::train {

std::vector<int64_t> moment_sizes(const MomentSpec& moment, at::IntArrayRef sizes) {
  if (moment.span == 1) return sizes.vec();
  return {(c10::multiply_integers(sizes) + moment.span - 1) / moment.span};
}

double moment_bytes(const UpdateRule& rule, at::IntArrayRef sizes, bool embedding) {
  double bytes = 0;
  for (const MomentSpec& moment : rule.moments(sizes, embedding)) {
    bytes += static_cast<double>(c10::elementSize(moment.dtype)) *
             static_cast<double>(c10::multiply_integers(moment_sizes(moment, sizes)));
  }
  return bytes;
}

}  // namespace lft::train
