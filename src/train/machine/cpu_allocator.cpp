#include "src/train/machine/cpu_allocator.h"

#include <c10/core/CPUAllocator.h>
#include <c10/core/alignment.h>
#include <c10/util/Exception.h>
#include <c10/util/env.h>

#ifdef __GLIBC__
#include <malloc.h>
#endif
#ifdef __linux__
#include <sys/mman.h>
#endif
#include <algorithm>
#include <cstdlib>
#include <limits>
#include <string>
#include <thread>

#include "src/train/machine/device.h"

namespace lft::train {
namespace {

constexpr uintptr_t kBlockAlignment = c10::gAlignment;
constexpr size_t kMapped = 32 << 20;  // bytes from which malloc always maps a separate block
static_assert(kBlockAlignment >= 2 * sizeof(void*) &&
              (kBlockAlignment & (kBlockAlignment - 1)) == 0);

/// The address that malloc returned is stored in front of a tensor's bytes.
void release(void* data) {
  if (data == nullptr) return;
  c10::profiledCPUMemoryReporter().Delete(data);
  std::free(static_cast<void**>(data)[-1]);
}

/// On first use, memory is then mapped in pages of 2 MiB if the system has them, not 4 KiB: for a
/// model's weights page faults otherwise cost as much as reading.
void ask_for_huge_pages([[maybe_unused]] uintptr_t start, [[maybe_unused]] size_t bytes) {
#ifdef __linux__
  constexpr uintptr_t kHuge = 2 << 20;
  const uintptr_t first = (start + kHuge - 1) / kHuge * kHuge,
                  end = (start + bytes) / kHuge * kHuge;
  if (end > first) madvise(reinterpret_cast<void*>(first), end - first, MADV_HUGEPAGE);
#endif
}

class ReusingAllocator : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    const at::Device cpu(at::kCPU);
    if (bytes == 0) return {nullptr, nullptr, &release, cpu};
    void* const block = bytes > std::numeric_limits<size_t>::max() - kBlockAlignment
                            ? nullptr
                            : std::malloc(bytes + kBlockAlignment);
    if (block == nullptr) {
      c10::profiledCPUMemoryReporter().OutOfMemory(bytes);
      TORCH_CHECK(false, "DefaultCPUAllocator: can't allocate memory: you tried to allocate ",
                  bytes, " bytes.");
    }
    const uintptr_t start = (reinterpret_cast<uintptr_t>(block) + kBlockAlignment) /
                            kBlockAlignment * kBlockAlignment;  // malloc's own alignment is 16
    void* const data = reinterpret_cast<void*>(start);
    static_cast<void**>(data)[-1] = block;
    if (bytes >= kMapped) ask_for_huge_pages(start, bytes);
    c10::profiledCPUMemoryReporter().New(data, bytes);
    return {data, data, &release, cpu};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }
};

/// malloc's arenas; each keeps the memory that its threads freed.
void bound_arenas() {
#ifdef __GLIBC__
  if (std::getenv("MALLOC_ARENA_MAX") == nullptr)
    mallopt(M_ARENA_MAX, static_cast<int>(std::max(2U, std::thread::hardware_concurrency())));
#endif
}

void bound_product_cache() {
  const std::string products = std::to_string(kCachedProducts);
  for (const char* cache :
       {"LRU_CACHE_CAPACITY",
        "ONEDNN_PRIMITIVE_CACHE_CAPACITY"}) {  // LibTorch's own precedes oneDNN's
    c10::utils::set_env(cache, products.c_str(), /*overwrite=*/false);
  }
}

}  // namespace

void bound_cpu_memory() {
  static const bool bounded = [] {
    static ReusingAllocator allocator;
    c10::SetCPUAllocator(&allocator, /*priority=*/0);
    bound_arenas();
    bound_product_cache();
    return true;
  }();
  static_cast<void>(bounded);
}

void keep_freed_memory() {
#ifdef __GLIBC__
  if (std::getenv("MALLOC_TRIM_THRESHOLD_") != nullptr) return;
  mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max());
  mallopt(M_MMAP_THRESHOLD, kMapped);  // would otherwise no longer rise to this value
#endif
}

int64_t cached_product_bytes() {
  static const bool amx = device_facts(at::kCPU).bf16_unit == "amx_bf16";
  return amx ? 800'000 : 750'000;
}

}  // namespace lft::train
