// The interface between the program and its module
// for NCCL and shared GPU memory: three functions.
#pragma once
#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <memory>
#include <string>

namespace c10d {
class Backend;
class Store;
}  // namespace c10d

namespace lft::dist {

inline constexpr const char* kNcclModule = "liblft_nccl.so";
inline constexpr const char* kNcclEntry = "lft_open_nccl";
inline constexpr const char* kShareEntry = "lft_share_gpu_memory";
inline constexpr const char* kOpenEntry = "lft_open_gpu_memory";

/// A group of the current device.
using NcclEntry = c10::intrusive_ptr<c10d::Backend> (*)(c10::intrusive_ptr<c10d::Store> store,
                                                        int rank, int size,
                                                        std::chrono::milliseconds timeout);

/// A handle to memory of LibTorch's allocator on a GPU, for another process of the machine.
struct GpuHandle {
  int64_t offset = 0;
  std::string handle = {};
};
using ShareEntry = void (*)(void* memory, GpuHandle* handle);
/// Memory of another process, for the current device; valid while the result exists.
using OpenEntry = void (*)(const GpuHandle& handle, std::shared_ptr<void>* memory);

}  // namespace lft::dist
