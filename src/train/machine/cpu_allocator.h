// CPU memory allocation for LibTorch: blocks that
// glibc can reuse, and a limit on oneDNN's cache.
#pragma once
#include <cstdint>

namespace lft::train {

/// Allocates LibTorch's CPU tensors within malloc's blocks from now on and aligns
/// them there. LibTorch's own allocator requests aligned blocks, and glibc (before
/// 2.38) cannot reuse the hole of such a block for another of its size: a training
/// step then uses a quarter to a half more memory than its tensors. Has no effect
/// if another allocator was installed before. Errors are LibTorch's. malloc gets no
/// more arenas than processors, since each arena keeps its threads' freed memory,
/// unless the environment sets the number. Also limits the kernels that oneDNN caches,
/// one per shape, unless the environment does: the default is 1024, and every batch
/// length adds shapes. Call it before the first product and before threads start, since it changes
/// the environment; later calls have no effect.
void bound_cpu_memory();

/// malloc no longer returns freed memory at the end of a heap to the system, unless the environment
/// sets that threshold (MALLOC_TRIM_THRESHOLD_). Call it before the first of many passes, each of
/// which allocates what the one before freed: otherwise every pass has its memory's page faults
/// again. release_free_memory() still returns it.
void keep_freed_memory();

constexpr int64_t kCachedProducts =
    64;  // a step of one length has 25 to 30; fewer would be recompiled at every use
/// Measured bytes of one in BF16: with AMX, and with avx512_bf16 alone.
int64_t cached_product_bytes();

}  // namespace lft::train
