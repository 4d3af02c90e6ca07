#include "kernels/adamw/adamw.h"

namespace lft {

void adamw_ref(const AdamWArgs& args) {
  if (args.control->found_inf != 0) return;
  const double clip = args.control->clip;
  for (int64_t t = 0; t < args.count; ++t) {
    const AdamWItem& item = args.items[t];
    for (int64_t i = 0; i < item.count; ++i) {
      const double g = load_float(item.type, item.grad, i) * clip;
      const double m = item.exp_avg[i] + (1 - args.beta1) * (g - item.exp_avg[i]);
      const double v = args.beta2 * item.exp_avg_sq[i] + (1 - args.beta2) * g * g;
      const double p = item.param[i];
      item.exp_avg[i] = static_cast<float>(m);
      item.exp_avg_sq[i] = static_cast<float>(v);
      item.param[i] = static_cast<float>(
          p - item.decay * p - item.step_size * m / (std::sqrt(v) * item.inverse_root + args.eps));
      write_shadow(item.shadow, i, item.param[i]);
    }
  }
}

}  // namespace lft
