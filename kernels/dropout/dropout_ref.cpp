#include "kernels/common/philox.h"
#include "kernels/dropout/dropout.h"

namespace lft {

void dropout_ref(FloatType type, const void* x, void* y, int64_t n, const DropoutArgs& args) {
  for (int64_t i = 0; i < n; ++i) {
    const PhiloxBlock block = philox_block(args.seed, args.stream, static_cast<uint64_t>(i / 8));
    const uint32_t draw = (block.word[i % 8 / 2] >> (16 * (i % 2))) & 0xFFFFu;
    const float kept = draw >= args.threshold ? load_float(type, x, i) * args.scale : 0.0f;
    store_float(type, y, i, args.add ? load_float(type, y, i) + kept : kept);
  }
}

}  // namespace lft
