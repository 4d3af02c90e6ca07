// The only place where kernels are launched.
#pragma once
#include "kernels/common/float_type.h"
#include "kernels/common/launch.h"

namespace lft {

/// kernel(arguments...) on `blocks` blocks of `threads`, asynchronous. Throws like check_cuda if
/// the launch fails.
template <class... Parameters, class... Arguments>
void launch(const char* what, void (*kernel)(Parameters...), unsigned blocks, unsigned threads,
            Stream stream, const Arguments&... arguments) {
#ifdef __CUDACC__
  kernel<<<blocks, threads, 0, stream>>>(arguments...);
#else  // tests/kernels/emulation
  emulation::launch([=] { emulate(blocks, threads, [&] { kernel(arguments...); }); }, arguments...);
#endif
  check_cuda(cudaGetLastError(), what);
}

}  // namespace lft
