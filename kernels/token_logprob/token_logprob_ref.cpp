#include <cmath>
#include <limits>

#include "kernels/token_logprob/token_logprob.h"

namespace lft {

void token_logprob_ref(const TokenLogprobArgs& args) {
  for (int64_t r = 0; r < args.rows; ++r) {
    const int64_t first = r * args.vocab, target = args.targets[r];
    double top = -std::numeric_limits<double>::infinity(), sum = 0;
    for (int64_t v = 0; v < args.vocab; ++v)
      top = std::fmax(top, load_float(args.type, args.logits, first + v));
    for (int64_t v = 0; v < args.vocab; ++v)
      sum += std::exp(load_float(args.type, args.logits, first + v) - top);
    args.result[r] = static_cast<float>(load_float(args.type, args.logits, first + target) - top -
                                        std::log(sum));
    for (int64_t v = 0; args.scale != nullptr && v < args.vocab; ++v) {
      const double share = std::exp(load_float(args.type, args.logits, first + v) - top) / sum;
      store_float(args.type, args.logits, first + v,
                  static_cast<float>(args.scale[r] * ((v == target) - share)));
    }
  }
}

}  // namespace lft
