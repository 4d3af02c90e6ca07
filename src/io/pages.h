// An allocator for large temporary buffers: separate pages, which are returned to the system at
// once. In malloc's arenas, one per thread, freed buffers would remain as fragmented holes.
#pragma once
#include <sys/mman.h>

#include <cstddef>
#include <new>
#include <string>

namespace lft::io {

inline constexpr size_t kLargeBlock = 1 << 20;  // bytes; smaller blocks come from malloc

template <class T>
struct PageAllocator {
  using value_type = T;

  PageAllocator() = default;
  template <class U>
  PageAllocator(const PageAllocator<U>&) {}

  T* allocate(size_t count) {
    const size_t bytes = count * sizeof(T);
    if (bytes < kLargeBlock) return static_cast<T*>(::operator new(bytes));
    void* pages = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED) throw std::bad_alloc();
    return static_cast<T*>(pages);
  }
  void deallocate(T* block, size_t count) noexcept {
    const size_t bytes = count * sizeof(T);
    if (bytes < kLargeBlock) {
      ::operator delete(block);
    } else {
      munmap(block, bytes);
    }
  }
  bool operator==(const PageAllocator&) const { return true; }
};

/// The bytes of a file that may be large.
using FileBytes = std::basic_string<char, std::char_traits<char>, PageAllocator<char>>;

}  // namespace lft::io
