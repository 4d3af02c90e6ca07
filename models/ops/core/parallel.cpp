// Compiled with OpenMP: ATen's parallel_for is an inline function that is serial
// without it.
#include "models/ops/core/parallel.h"

#include <ATen/Parallel.h>
#include <omp.h>

namespace lft::ops {

void parallel_for(int64_t n, int64_t grain, const std::function<void(int64_t, int64_t)>& body) {
  at::parallel_for(0, n, grain < 1 ? 1 : grain, body);
}

void stay_single_threaded() {
  at::get_num_threads();  // ATen sets the thread's count on its first use, which must come before
  omp_set_num_threads(1);
}

}  // namespace lft::ops
