// The simulated device's memory: one region of the address space. Blocks of exact sizes are kept
// in pools, as in LibTorch's CUDA allocator.
#pragma once
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace lft::test::stand_in {

/// During its lifetime, a guarded region can be read and written by any thread.
class Access {
 public:
  Access();
  ~Access();
  Access(const Access&) = delete;
};

constexpr int64_t kDefaultPool = 0;

/// An uninitialised block of the pool. nullptr if `limit` would be exceeded.
void* take_block(int64_t pool, size_t bytes);
/// Returns a block to its pool.
void return_block(void* block);
/// Removes unused blocks from the pool.
void empty_pool(int64_t pool);
/// A new pool. Its blocks are counted like those of the others.
int64_t new_pool();

struct MemoryUse {
  int64_t allocated = 0, allocated_peak = 0;  // bytes in use
  int64_t reserved = 0, reserved_peak = 0;    // bytes owned by pools, in use or not
  int64_t taken_from_device = 0;              // number of pool growths
};
MemoryUse memory_use();
void reset_memory_peaks();
/// Maximum bytes of the pools; larger allocations fail.
void limit_memory(int64_t bytes);
int64_t memory_limit();

/// Size of the block in use that the address is in; 0 outside of the region.
int64_t block_bytes(const void* address);
/// Whether the address is in the region.
bool is_device_address(const void* address);

/// A copy of the region's contents, and its restoration: later writes are undone.
std::vector<char> region_snapshot();
void restore_region(const std::vector<char>& snapshot);

}  // namespace lft::test::stand_in
