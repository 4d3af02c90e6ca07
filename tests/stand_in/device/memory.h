// The stand-in device's memory: one region of the address space. Blocks of exact sizes are kept in
// pools, as LibTorch's CUDA allocator keeps them.
#pragma once
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace lft::test::stand_in {

/// While one lives, on any thread, a guarded region can be read and written.
class Access {
 public:
  Access();
  ~Access();
  Access(const Access&) = delete;
};

constexpr int64_t kDefaultPool = 0;

/// A block of the pool's, never initialised. nullptr where `limit` is passed.
void* take_block(int64_t pool, size_t bytes);
/// Back to the pool that it came from.
void return_block(void* block);
/// Blocks of the pool that nobody uses leave it.
void empty_pool(int64_t pool);
/// A pool that was never used. Its blocks are counted like those of the others.
int64_t new_pool();

struct MemoryUse {
  int64_t allocated = 0, allocated_peak = 0;  // bytes in use
  int64_t reserved = 0, reserved_peak = 0;    // bytes held by pools, in use or not
  int64_t taken_from_device = 0;              // times that a pool had to grow
};
MemoryUse memory_use();
void reset_memory_peaks();
/// Bytes that pools may hold; what would take more fails.
void limit_memory(int64_t bytes);
int64_t memory_limit();

/// Whether the address lies in the region.
bool is_device_address(const void* address);

/// All that the region holds, and the same again: what was written since is undone.
std::vector<char> region_snapshot();
void restore_region(const std::vector<char>& snapshot);

}  // namespace lft::test::stand_in
