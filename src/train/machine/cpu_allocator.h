// The CPU's memory under LibTorch: blocks that glibc can use again, and a bound on what oneDNN
// keeps.
#pragma once
#include <cstdint>

namespace lft::train {

/// From now on LibTorch's CPU tensors are allocated within malloc's blocks and aligned there.
/// LibTorch's own allocator asks for aligned blocks, and glibc (before 2.38) cannot fill the hole
/// that such a block leaves with another of its size: a training step then holds a quarter to a
/// half more than its tensors. Has no effect where another allocator was installed before. Errors
/// are those of LibTorch's. malloc has no more arenas than there are processors, since each keeps
/// what its threads freed, unless the environment sets their number. Also bounds oneDNN's compiled
/// products, one for each shape, unless the environment does: by itself it keeps 1024, and every
/// length of a batch brings its own. To be called before the first product and before threads
/// start.
void bound_cpu_memory();

constexpr int64_t kCachedProducts =
    64;  // a step of one length has 25 to 30; fewer than it has would be compiled at every use
/// Bytes of one in BF16, by measurement: with AMX, and with avx512_bf16 alone.
int64_t cached_product_bytes();

}  // namespace lft::train
