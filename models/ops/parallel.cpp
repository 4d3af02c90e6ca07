// The only file compiled with OpenMP: ATen's parallel_for is an inline function that is serial without it.
#include "models/ops/parallel.h"

#include <ATen/Parallel.h>

namespace lft {

void parallel_for(int64_t n, int64_t grain, const std::function<void(int64_t, int64_t)>& body) {
  at::parallel_for(0, n, grain < 1 ? 1 : grain, body);
}

}  // namespace lft
