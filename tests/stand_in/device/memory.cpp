#include "stand_in/device/memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

#include "stand_in/device/device.h"

namespace lft::test::stand_in {
namespace {

constexpr size_t kRegion = size_t{1} << 36;  // bytes of address space, committed on first use
constexpr size_t kGrain = 512;               // blocks are multiples of it, as CUDA's are
constexpr size_t kPage = 4096;

struct Block {
  size_t bytes = 0;
  int64_t pool = kDefaultPool;
};

struct Region {
  std::recursive_mutex mutex;
  char* const base;
  size_t top = 0;  // bytes ever used
  int open = 0;    // Access objects alive
  bool guarded = false;
  std::map<void*, Block> used;
  std::map<std::pair<int64_t, size_t>, std::vector<void*>> kept;  // free blocks by pool and size
  std::map<size_t, std::vector<void*>> free;                      // blocks outside pools
  MemoryUse use;
  int64_t limit = int64_t{1} << 35;
  int64_t pools = kDefaultPool;

  Region()
      : base(static_cast<char*>(mmap(nullptr, kRegion, PROT_NONE,
                                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0))) {
    if (base != MAP_FAILED) return;
    std::perror("the stand-in device's memory");
    std::abort();
  }
  void protect(int protection) {
    const size_t bytes = (top + kPage - 1) / kPage * kPage;
    if (bytes > 0) mprotect(base, bytes, protection);
  }
};

Region& region() {
  static Region& region = *new Region;  // blocks are returned until the very end of the process
  return region;
}

}  // namespace

Access::Access() {
  Region& r = region();
  const std::lock_guard lock(r.mutex);
  if (r.open++ == 0 && r.guarded) r.protect(PROT_READ | PROT_WRITE);
}

Access::~Access() {
  Region& r = region();
  const std::lock_guard lock(r.mutex);
  if (--r.open == 0 && r.guarded) r.protect(PROT_NONE);
}

MemoryGuard::MemoryGuard() {
  Region& r = region();
  const std::lock_guard lock(r.mutex);
  r.guarded = true;
  r.protect(PROT_NONE);
}

MemoryGuard::~MemoryGuard() {
  Region& r = region();
  const std::lock_guard lock(r.mutex);
  r.guarded = false;
  r.protect(PROT_READ | PROT_WRITE);
}

void* take_block(int64_t pool, size_t bytes) {
  const Access access;
  Region& r = region();
  const std::lock_guard lock(r.mutex);
  bytes = std::max(kGrain, (bytes + kGrain - 1) / kGrain * kGrain);
  void* block = nullptr;
  if (auto& kept = r.kept[{pool, bytes}]; !kept.empty()) {
    block = kept.back();
    kept.pop_back();
  } else {
    if (r.use.reserved + static_cast<int64_t>(bytes) > r.limit) return nullptr;
    if (auto& free = r.free[bytes]; !free.empty()) {
      block = free.back();
      free.pop_back();
    } else {
      if (r.top + bytes > kRegion) return nullptr;
      block = r.base + r.top;
      r.top += bytes;
      r.protect(PROT_READ | PROT_WRITE);
      std::memset(block, 0xAB, bytes);  // not zeros, as on a GPU
    }
    ++r.use.taken_from_device;
    r.use.reserved += static_cast<int64_t>(bytes);
    r.use.reserved_peak = std::max(r.use.reserved_peak, r.use.reserved);
  }
  r.used[block] = {.bytes = bytes, .pool = pool};
  r.use.allocated += static_cast<int64_t>(bytes);
  r.use.allocated_peak = std::max(r.use.allocated_peak, r.use.allocated);
  return block;
}

void return_block(void* block) {
  Region& r = region();
  const std::lock_guard lock(r.mutex);
  const auto found = r.used.find(block);
  if (found == r.used.end()) return;
  r.use.allocated -= static_cast<int64_t>(found->second.bytes);
  r.kept[{found->second.pool, found->second.bytes}].push_back(block);
  r.used.erase(found);
}

void empty_pool(int64_t pool) {
  Region& r = region();
  const std::lock_guard lock(r.mutex);
  for (auto& [key, blocks] : r.kept) {
    if (key.first != pool) continue;
    r.use.reserved -= static_cast<int64_t>(key.second * blocks.size());
    auto& free = r.free[key.second];
    free.insert(free.end(), blocks.begin(), blocks.end());
    blocks.clear();
  }
}

int64_t new_pool() {
  Region& r = region();
  const std::lock_guard lock(r.mutex);
  return ++r.pools;
}

MemoryUse memory_use() {
  Region& r = region();
  const std::lock_guard lock(r.mutex);
  return r.use;
}

void reset_memory_peaks() {
  Region& r = region();
  const std::lock_guard lock(r.mutex);
  r.use.allocated_peak = r.use.allocated;
  r.use.reserved_peak = r.use.reserved;
}

void limit_memory(int64_t bytes) {
  Region& r = region();
  const std::lock_guard lock(r.mutex);
  r.limit = bytes;
}

int64_t memory_limit() {
  Region& r = region();
  const std::lock_guard lock(r.mutex);
  return r.limit;
}

MemoryLimit::MemoryLimit(int64_t bytes) : before_(memory_limit()) {
  limit_memory(memory_use().reserved + bytes);
}
MemoryLimit::~MemoryLimit() { limit_memory(before_); }

int64_t block_bytes(const void* address) {
  Region& r = region();
  const std::lock_guard lock(r.mutex);
  auto found = r.used.upper_bound(const_cast<void*>(address));
  if (found == r.used.begin()) return 0;
  --found;
  const char* const end = static_cast<char*>(found->first) + found->second.bytes;
  return static_cast<const char*>(address) < end ? static_cast<int64_t>(found->second.bytes) : 0;
}

bool is_device_address(const void* address) {
  const char* const at = static_cast<const char*>(address);
  return at >= region().base && at < region().base + kRegion;
}

std::vector<char> region_snapshot() {
  const Access access;
  Region& r = region();
  const std::lock_guard lock(r.mutex);
  return {r.base, r.base + r.top};
}

void restore_region(const std::vector<char>& snapshot) {
  const Access access;
  if (!snapshot.empty()) std::memcpy(region().base, snapshot.data(), snapshot.size());
}

}  // namespace lft::test::stand_in
