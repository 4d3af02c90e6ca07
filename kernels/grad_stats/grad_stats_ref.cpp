#include "kernels/grad_stats/grad_stats.h"

namespace lft {

void grad_stats_ref(const GradStatsArgs& args) {
  double squared_norm = 0;
  int32_t first_bad = -1;
  for (int64_t t = 0; t < args.count; ++t) {
    const GradTensor& tensor = args.tensors[t];
    double sum = 0;
    for (int64_t i = 0; i < tensor.count; ++i) {
      if (args.inv_scale != 1)
        store_float(tensor.type, tensor.data, i,
                    load_float(tensor.type, tensor.data, i) * args.inv_scale);
      const double value = load_float(tensor.type, tensor.data, i);
      if (!std::isfinite(value) && first_bad < 0) first_bad = static_cast<int32_t>(t);
      sum += value * value;
    }
    args.squares[t] = sum;
    squared_norm += sum;
  }
  *args.control = {};
  decide(*args.control, squared_norm, first_bad, args.loss, args.max_norm);
}

}  // namespace lft
