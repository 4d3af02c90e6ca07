#include "kernels/rope/rope.h"

namespace lft {

void rope_ref(const RopeArgs& args, const void* x, void* y) {
  for (int64_t r = 0; r < args.rows; ++r) {
    const int64_t angle = (r / args.positions * args.angle_stride + r % args.positions) * args.half;
    for (int64_t h = 0; h < args.heads; ++h) {
      const int64_t first = (r * args.heads + h) * 2 * args.half;
      for (int64_t i = 0; i < args.half; ++i) {
        const volatile float a = load_float(args.type, x, first + i),
                             b = load_float(args.type, x, first + args.half + i);
        const float c = args.cos[angle + i], s = args.sign * args.sin[angle + i];
        const volatile float ac = a * c, bs = b * s, bc = b * c,
                             as = a * s;  // prevents a fused multiply-add
        store_float(args.type, y, first + i, ac - bs);
        store_float(args.type, y, first + args.half + i, bc + as);
      }
    }
  }
}

}  // namespace lft
